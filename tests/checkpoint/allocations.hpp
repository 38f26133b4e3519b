// What the program that links this asks of `new`.
#pragma once

#include <cstddef>

namespace ddp::checkpoint_test {

std::size_t largest_allocation();  // bytes, since the last forget_allocations()
void forget_allocations();

}  // namespace ddp::checkpoint_test
