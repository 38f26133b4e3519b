// What ranks say to each other about a step beside gradients: mistakes, which all are to hear of.
#pragma once

#include <ddp/process_group.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ddp::reducer {

// Collective. The text of each rank.
std::vector<std::string> gather_texts(const std::string& mine, ProcessGroup& group);

// Collective, blocks. When a rank's text is not empty, all ranks throw the same UsageError: the
// first one's text with its rank, and which other ranks have one.
void throw_if_any(const std::string& mistake, ProcessGroup& group);

}  // namespace ddp::reducer
