// Replaces the program's operator new and delete: every allocation passes here.
#include "checkpoint/allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> largest{0};
}

namespace ddp::checkpoint_test {

std::size_t largest_allocation() { return largest; }
void forget_allocations() { largest = 0; }

}  // namespace ddp::checkpoint_test

void* operator new(std::size_t bytes) {
    if (bytes > largest) largest = bytes;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    if (bytes > largest) largest = bytes;
    return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
