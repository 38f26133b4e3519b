// The C++ blocks of a page, as functions; extract_blocks.py writes them.
#pragma once

#include <vector>

struct DocumentedBlock {
    int line;  // of the page
    int (*run)();
};

const std::vector<DocumentedBlock>& documented_blocks();
