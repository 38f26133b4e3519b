// Memory that all ranks of this host map, without the library's help.
#pragma once

#include <ddp/process_group.hpp>

#include <cstddef>

namespace ddp::bench {

class SharedPages {
public:
    // Zeros. Collective. Throws SystemError on all ranks when one cannot map them.
    SharedPages(ProcessGroup& group, std::size_t bytes);
    ~SharedPages();
    SharedPages(const SharedPages&) = delete;
    SharedPages& operator=(const SharedPages&) = delete;

    std::byte* data() const { return memory_; }

private:
    std::size_t bytes_;
    std::byte* memory_ = nullptr;
};

}  // namespace ddp::bench
