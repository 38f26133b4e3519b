// Memory of the program's that peers read and write in place: its whole pages move into shared
// memory and keep their addresses and bytes. What it has before the first and after the last of
// them is on pages that may hold other things, too: that stays, and peers see copies of it, which
// are made before and after each call. Invariant: between calls all bytes are at their addresses.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ddp::shm {

class AdoptedPages {
public:
    // `piece`: shared pages for all those that the memory touches. Throws SystemError that begins
    // with `what` where the memory cannot move: a stack's, shared or read-only pages.
    AdoptedPages(std::span<std::byte> memory, std::byte* piece, const std::string& what);
    // The pages are the program's alone again.
    ~AdoptedPages();
    AdoptedPages(const AdoptedPages&) = delete;
    AdoptedPages& operator=(const AdoptedPages&) = delete;

    bool contains(const void* data, std::size_t bytes) const;
    // Where in the piece these bytes are; as peers see them.
    std::size_t offset_of(const void* data) const;
    // Between the bytes of a part that do not move and the peers' copies of them.
    void show_ends(std::span<const std::byte> part) const;
    void take_ends(std::span<std::byte> part) const;

private:
    // Maps these pages where the memory's are, again (of a length of 0) or instead. Sets errno.
    bool map_over(std::byte* pages, std::size_t old_bytes) const;
    void map_ordinary_pages() const;
    template <class Copy>
    void for_each_end(std::span<const std::byte> part, const Copy& copy) const;

    std::span<std::byte> memory_;
    std::span<std::byte> moved_;  // whole pages; may be none
    std::byte* piece_;
};

}  // namespace ddp::shm
