// The C++ blocks of a page, as functions; extract_blocks.py writes them.
#pragma once

#include <string>
#include <vector>

struct DocumentedBlock {
    int line;             // of the page
    std::string section;  // the page's heading above it
    int (*run)();
};

const std::vector<DocumentedBlock>& documented_blocks();
