// What 04_data_parallel needs beside DataParallel itself: its options, whole lines, and the table
// of
// --memory.
#pragma once

#include <ddp/data_parallel.hpp>

#include <string>

namespace nn {

struct DataParallelProgram {
    ddp::DataParallelOptions options;
    bool memory = false;  // print the table instead of the tutorial's lines
};

// Prints the help and exits for --help. Throws ddp::UsageError.
DataParallelProgram parse_data_parallel_options(int argc, char** argv);

// To stdout, in one piece whatever other threads print.
void print_line(const std::string& line);

// The most bytes that each device holds in a training step, when the outputs are gathered for the
// loss and when each replica computes its own.
void print_memory(const ddp::DataParallelOptions& options);

}  // namespace nn
