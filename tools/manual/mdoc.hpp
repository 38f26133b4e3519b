// Pages in mdoc(7), which mandoc and groff set.
#pragma once

#include <string>
#include <string_view>

namespace ddp::manual {

// "2026-11-30" as mdoc wants it: "November 30, 2026". Throws Error for what is no date.
std::string date_of(const std::string& date);

// Words as text, without an empty line. A sentence ends its line.
std::string prose(const std::string& words);

// The page of `program` from what its --help prints: paragraphs, "usage:" with a command a line, and
// "options:" with those that begin a line behind two blanks. `summary`: a few words, without a full
// stop. Throws Error for a text without a usage.
std::string help_page(const std::string& program, const std::string& summary, std::string_view help,
                      const std::string& date);

}  // namespace ddp::manual
