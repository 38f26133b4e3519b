// The memory that the threads of an explored program share, as the C++20 memory model lets them see
// it, in the style of Kang et al., "A Promising Semantics for Relaxed-Memory Concurrency" (POPL
// 2017), without promises.
//
// Each location has its messages in modification order. Each thread has a view: of each location
// the oldest message that it may still read. A message carries the view that an acquire load of it
// adds to the reader's. Invariant: a view is an index into the messages of its location, so it
// moves up when a store is inserted before it.
//
// What the model leaves out, so that it misses behaviours of C++ there: a load never returns what a
// later store of its own thread leads to (load buffering, which needs promises); seq_cst operations
// take effect in an order that agrees with all of happens-before (C++20 asks for that only of
// strongly happens-before).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace explorer {

inline constexpr std::size_t max_locations = 32;
inline constexpr std::size_t max_threads = 4;

struct View {
    std::array<std::uint16_t, max_locations> seen{};  // by location: an index into its messages
    std::array<std::uint16_t, max_threads> clock{};   // happens-before: of each thread, how far

    void join(const View& other);
    void join_seen(const View& other);  // coherence alone: makes nothing happen before
};

struct Message {
    std::uint64_t value = 0;
    View view;
    bool is_attached = false;  // by a read-modify-write of the message before it: nothing between
};

// Kernel calls on one futex word are ordered by a lock of the kernel's; this is what it passes on.
struct Location {
    std::vector<Message> messages;
    View kernel_lock;
};

// The views of one thread.
struct ThreadViews {
    View current;   // what its loads must respect
    View acquired;  // what an acquire fence would add: of all messages read
    View released;  // what its relaxed stores carry: the view at its last release fence
};

// A variable that is no atomic: who wrote it last and who has read it since.
struct Plain {
    std::uint64_t value = 0;
    std::size_t writer = 0;
    std::uint16_t written = 0;                         // at that clock of the writer; 0: never
    std::array<std::uint16_t, max_threads> read_at{};  // at that clock of each thread; 0: not since
};

class Memory {
public:
    // Which of `count` alternatives to take.
    using Choose = std::function<std::size_t(std::size_t count)>;

    void clear();
    std::size_t add_location(std::uint64_t value);
    std::size_t add_plain(std::uint64_t value);

    std::uint64_t load(std::size_t thread, std::size_t location, std::memory_order order,
                       const Choose& choose);
    void store(std::size_t thread, std::size_t location, std::uint64_t value,
               std::memory_order order, const Choose& choose);
    // `update` gives the value to write, or none to leave it at the load, which then has `failure`.
    struct Orders {
        std::memory_order success, failure;
    };
    using Update = std::function<bool(std::uint64_t& value)>;
    std::uint64_t read_modify_write(std::size_t thread, std::size_t location, const Update& update,
                                    Orders orders, const Choose& choose);
    void fence(std::size_t thread, std::memory_order order);
    // P1202's asymmetric fences: two of which at least one is heavy order as seq_cst fences do.
    void light_fence(std::size_t thread);
    void heavy_fence(std::size_t thread);
    // Around what a kernel call on that futex word does.
    void enter_kernel(std::size_t thread, std::size_t location);
    void leave_kernel(std::size_t thread, std::size_t location);

    // Whether the access is ordered with all earlier ones that it conflicts with.
    bool read_plain(std::size_t thread, std::size_t plain, std::uint64_t& value);
    bool write_plain(std::size_t thread, std::size_t plain, std::uint64_t value);

    // Whether that thread could read nothing older of it.
    bool sees_latest(std::size_t thread, std::size_t location) const;
    std::size_t messages(std::size_t location) const {
        return locations_[location].messages.size();
    }
    std::uint64_t latest(std::size_t location) const {
        return locations_[location].messages.back().value;
    }
    std::size_t locations() const { return locations_.size(); }
    // Two memories of one digest go on alike for the threads that are still running: what none of
    // them can read any more is left out.
    std::uint64_t digest(std::span<const std::size_t> running) const;

private:
    std::size_t oldest_readable(std::size_t thread, std::size_t location,
                                std::memory_order order) const;
    void note_read(std::size_t thread, std::size_t location, std::size_t index,
                   std::memory_order order);
    void insert(std::size_t thread, std::size_t location, std::size_t index, std::uint64_t value,
                std::memory_order order, const View* read);
    template <class Visit>
    void visit_views(const Visit& visit);

    std::vector<Location> locations_;
    std::vector<Plain> plains_;
    std::array<ThreadViews, max_threads> threads_;
    View sequential_;  // of seq_cst fences and operations
    View heavy_;       // of heavy fences
    View asymmetric_;  // of heavy and light ones
};

// Of a state's digest.
inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccdULL;
    return hash ^ hash >> 32;
}

}  // namespace explorer
