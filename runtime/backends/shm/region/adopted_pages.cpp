#include "backends/shm/region/adopted_pages.hpp"

#include "backends/shm/region/host_kernel.hpp"
#include "base/process/process_tree.hpp"

#include <ddp/error.hpp>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace ddp::shm {
namespace {

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

std::span<std::byte> whole_pages_of(std::span<std::byte> memory) {
    const std::size_t before = -number(memory.data()) % page_bytes;
    if (before >= memory.size()) return {};
    const std::span<std::byte> rest = memory.subspan(before);
    return rest.first(rest.size() / page_bytes * page_bytes);
}

// Of pages that are replaced, nothing else may be lost than what they say; nothing: all is well.
std::string why_not_movable(std::span<const std::byte> pages) {
    std::uintptr_t next = number(pages.data());
    const std::uintptr_t end = next + pages.size();
    std::string refusal;
    base::for_each_mapping("self", [&](const base::Mapping& one) {
        if (one.end <= next) return true;
        if (one.begin > next) return false;
        if (!one.access.starts_with("rw")) {
            refusal = "it cannot be written to";
        } else if (!one.access.ends_with('p')) {
            refusal = "it is shared already";
        } else if (one.path.starts_with("[stack")) {
            refusal = "it is a stack's";
        }
        next = one.end;
        return refusal.empty() && next < end;
    });
    return refusal.empty() && next < end ? "there is none at its address" : refusal;
}

}  // namespace

AdoptedPages::AdoptedPages(std::span<std::byte> memory, std::byte* piece, const std::string& what)
    : memory_(memory), moved_(whole_pages_of(memory)), piece_(piece) {
    if (moved_.empty()) return;
    const std::string refusal = why_not_movable(moved_);
    if (!refusal.empty()) throw SystemError(what + ": " + refusal, EINVAL);
    std::byte* const pages = piece_ + offset_of(moved_.data());
    std::memcpy(pages, moved_.data(), moved_.size());
    // Of a length of 0 nothing is moved: the shared pages are mapped once more.
    if (!map_over(pages, 0)) {
        const int code = errno;
        map_ordinary_pages();  // a kernel may have taken away what was there
        throw SystemError(what, code);
    }
    ::madvise(moved_.data(), moved_.size(), MADV_POPULATE_WRITE);  // not in the first call
}

AdoptedPages::~AdoptedPages() {
    if (!moved_.empty()) map_ordinary_pages();
}

// Not by the C library's function: other libraries replace that, and UCX's forgets the last
// argument.
bool AdoptedPages::map_over(std::byte* pages, std::size_t old_bytes) const {
    constexpr int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    return ::syscall(SYS_mremap, pages, old_bytes, moved_.size(), flags, moved_.data()) != -1;
}

// With the bytes of the shared ones. Where the kernel refuses, those stay, and nothing is lost.
void AdoptedPages::map_ordinary_pages() const {
    void* const own =
        ::mmap(nullptr, moved_.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return;
    std::memcpy(own, piece_ + offset_of(moved_.data()), moved_.size());
    if (!map_over(static_cast<std::byte*>(own), moved_.size())) ::munmap(own, moved_.size());
}

bool AdoptedPages::contains(const void* data, std::size_t bytes) const {
    const std::uintptr_t first = number(data);
    const std::uintptr_t own = number(memory_.data());
    return first >= own && first - own <= memory_.size() && bytes <= memory_.size() - (first - own);
}

std::size_t AdoptedPages::offset_of(const void* data) const {
    return number(data) - number(memory_.data()) / page_bytes * page_bytes;
}

// `copy(at, bytes)` for what is in the part before the first whole page, and after the last one.
template <class Copy>
void AdoptedPages::for_each_end(std::span<const std::byte> part, const Copy& copy) const {
    const std::byte* const end = memory_.data() + memory_.size();
    const std::byte* const head_end = moved_.empty() ? end : moved_.data();
    const std::byte* const tail = moved_.empty() ? end : moved_.data() + moved_.size();
    const std::byte* const part_end = part.data() + part.size();
    if (part.data() < head_end) copy(part.data(), std::min(head_end, part_end));
    if (part_end > tail) copy(std::max(tail, part.data()), part_end);
}

void AdoptedPages::show_ends(std::span<const std::byte> part) const {
    for_each_end(part, [&](const std::byte* from, const std::byte* end) {
        std::memcpy(piece_ + offset_of(from), from, static_cast<std::size_t>(end - from));
    });
}

void AdoptedPages::take_ends(std::span<std::byte> part) const {
    for_each_end(part, [&](const std::byte* from, const std::byte* end) {
        std::byte* const to = part.data() + (from - part.data());
        std::memcpy(to, piece_ + offset_of(from), static_cast<std::size_t>(end - from));
    });
}

}  // namespace ddp::shm
