// What the comment at the top of an example promises, compared with what the example printed. In
// the comment a line `//   expected:` is followed by the output, each line of it indented deeper or
// empty:
//     //   expected:
//     //     moved <bytes> bytes in <ms> ms
//     //     ...
// <word> stands for one or more characters without a blank, `...` alone for any number of lines,
// and any number of blanks for any other, so that columns of numbers may vary in width. An example
// with several outputs names them: `//   expected with 8 devices:`.
#pragma once

#include <string>
#include <vector>

#include "examples/run_program.hpp"

namespace ddp::tests {

// Of examples/<example>.cpp or .c, below the line that says `label` and a colon. Fails the test when
// there is no such line or nothing below it.
std::vector<std::string> expected_output(const std::string& example,
                                         const std::string& label = "expected");

enum class LineOrder { fixed, any };  // any: of ranks or replicas side by side; then without `...`

// Nothing when the output is as expected; else what is the matter, in words.
std::string difference(const std::vector<std::string>& lines,
                       const std::vector<std::string>& expected, LineOrder order);

// Fails the test unless the program ended well, without a word on stderr, and printed this.
void expect_output(const ProgramResult& result, const std::vector<std::string>& expected,
                   LineOrder order = LineOrder::fixed);

}  // namespace ddp::tests
