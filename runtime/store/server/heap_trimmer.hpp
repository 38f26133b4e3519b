// HeapTrimmer: gives memory that a server no longer needs back to the kernel at once, where the
// process is there for the server. Invariant: off, it changes nothing about the process's heap.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstddef>

namespace ddp::store {

class HeapTrimmer {
public:
    explicit HeapTrimmer(bool is_on) : is_on_(is_on) {
        if (is_on) ::mallopt(M_MMAP_THRESHOLD, mapped_alone);
    }
    bool is_on() const { return is_on_; }
    // The server holds that many bytes now.
    void note(std::size_t held) {
        most_held_ = std::max(most_held_, held);
        if (most_held_ - held < returned_at_once) return;
        ::malloc_trim(0);
        most_held_ = held;
    }

private:
    static constexpr std::size_t returned_at_once = std::size_t{8} << 20;
    static constexpr int mapped_alone = 128 << 10;  // larger blocks go back when they are freed

    bool is_on_;
    std::size_t most_held_ = 0;  // since memory was returned last
};

}  // namespace ddp::store
