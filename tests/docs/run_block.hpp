// Runs blocks of docs/from_pytorch.md inside a test, in a folder of their own.
#pragma once

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "docs/blocks.hpp"

// The block ends well and prints this, among other things; of an empty text the end is enough.
inline void expect_block_prints(const DocumentedBlock& block, const std::string& promised) {
    SCOPED_TRACE("docs/from_pytorch.md, line " + std::to_string(block.line));
    testing::internal::CaptureStdout();
    EXPECT_NO_THROW(EXPECT_EQ(block.run(), 0));
    EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr(promised));
}

// Four virtual devices and no GPU, as the page says.
inline void use_four_devices() {
    ::setenv("DDP_CPU_DEVICES", "4", 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
}

inline std::string make_folder() {
    std::string folder = std::filesystem::temp_directory_path() / "ddp_docs_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
        throw ddp::SystemError("documentation test: no folder " + folder, errno);
    }
    return folder;
}

inline std::vector<DocumentedBlock> blocks_of_section(const std::string& section) {
    std::vector<DocumentedBlock> found;
    for (const auto& block : documented_blocks()) {
        if (block.section == section) found.push_back(block);
    }
    return found;
}
