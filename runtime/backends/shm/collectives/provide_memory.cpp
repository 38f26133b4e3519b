#include "backends/shm/collectives/provide_memory.hpp"

#include "backends/shm/call/collective_context.hpp"
#include "backends/shm/call/op_descriptor.hpp"

#include <ddp/error.hpp>

#include <sys/mman.h>

#include <cstring>

namespace ddp::shm {
namespace {

// All ranks' pieces are read and written at the same offset at once. A power of two apart they are
// in different rows of the same DRAM banks, each of which has one row open: a bare loop over eight
// pieces 256 MiB apart moved 11 GB/s, and more than 30 with seven pages more between them. So from
// this size on the distance is seven pages beyond a multiple of 16, which is never a power of two.
constexpr std::size_t period = 16;
constexpr std::size_t pages_beyond_period = 7;
constexpr std::size_t min_spread_bytes = std::size_t{1} << 20;

// The distance from one rank's piece to the next. Overflows to less than `bytes`.
std::size_t stride_of(std::size_t bytes) {
    std::size_t pages = bytes / page_bytes + (bytes % page_bytes != 0 || bytes == 0 ? 1 : 0);
    if (bytes >= min_spread_bytes)
        pages += (period + pages_beyond_period - pages % period) % period;
    return pages * page_bytes;
}

// What a rank tells the others through its slot: an address, or an errno and what failed.
struct Report {
    std::int32_t code = 0;  // 0: fine
    char text[1024] = {};

    static Report of(const std::string& text) {
        Report report;
        std::strncpy(report.text, text.c_str(), sizeof report.text - 1);
        return report;
    }
    // A private copy of what a rank has put there, which ends.
    static Report read(const std::byte* slot) {
        Report report;
        std::memcpy(&report, slot, sizeof report);
        report.text[sizeof report.text - 1] = 0;
        return report;
    }
};

// Runs `make`, whose result is the report's text, and reports what it throws.
template <class Make>
Report report_of(const Make& make) {
    try {
        return Report::of(make());
    } catch (const SystemError& error) {
        std::string text = error.what();
        // A peer that throws it again appends the errno's text, as the constructor here has.
        text.resize(text.size() - std::strlen(": ") - std::strlen(::strerror(error.code())));
        Report report = Report::of(text);
        report.code = error.code();
        return report;
    } catch (const Error& error) {
        Report report = Report::of(error.what());
        report.code = EIO;
        return report;
    }
}

// Here rather than fault by fault in the first collective; a kernel before 5.14 does the latter.
void fill_page_tables(const SharedMemory& memory) {
    ::madvise(memory.data(), memory.bytes(), MADV_POPULATE_WRITE);
}

// Through this rank's slot of a chunk of the call: the first, or that of how the pages moved.
constexpr std::size_t of_pages = 1;
void publish(const CollectiveContext& context, const Report& report, std::size_t chunk = 0) {
    std::memcpy(context.slot(context.group.rank, chunk), &report, sizeof report);
}
Report report_of_rank(const CollectiveContext& context, std::size_t rank, std::size_t chunk = 0) {
    return Report::read(context.slot(rank, chunk));
}

// All ranks have published their reports: throws what the first rank that could not has reported.
// This rank's own is taken from here: a peer that has thrown may write its next call's data into
// that slot (swapped slots).
void agree(CollectiveContext& context, const Report& own, std::size_t chunk = 0) {
    GroupState& group = context.group;
    group.barrier.arrive_and_wait(context.deadline, context);
    Report report;
    for (std::size_t rank = 0; rank < group.ranks && report.code == 0; ++rank) {
        report = rank == group.rank ? own : report_of_rank(context, rank, chunk);
    }
    if (report.code != 0) throw SystemError(report.text, report.code);
}

// The chunks of what is published: two of an adopt.
struct ChunkCount {
    GroupState& group;
    std::size_t chunks;
    ~ChunkCount() { group.next_chunk += chunks; }
};

std::shared_ptr<void> adopt(CollectiveContext& context, std::shared_ptr<SharedMemory> memory,
                            std::size_t stride, const std::string& what) {
    GroupState& group = context.group;
    std::shared_ptr<void> adopted;
    const Report own = report_of([&] {
        const std::string here = what + ", of " + group.waiter.name(static_cast<int>(group.rank));
        adopted = group.allocations.adopt(std::move(memory), stride,
                                          {context.output(), context.call.bytes()}, here);
        return std::string();
    });
    publish(context, own, of_pages);
    agree(context, own, of_pages);
    return adopted;
}

}  // namespace

std::shared_ptr<void> provide_memory(CollectiveContext& context) {
    GroupState& group = context.group;
    const bool adopts = context.call.kind == backends::Collective::adopt;
    const std::size_t bytes = context.call.bytes();
    // What is adopted begins anywhere on its first page.
    const std::size_t stride = stride_of(adopts ? bytes + page_bytes - 1 : bytes);
    const std::string what = std::string("shm: ") + to_string(context.call.kind) + " " +
                             std::to_string(bytes) + " bytes on each of " +
                             std::to_string(group.ranks) + " ranks";
    std::shared_ptr<SharedMemory> memory;
    Report own;
    try {
        group.reserve_slots();  // for the reports
    } catch (const SystemError& error) {
        throw Error(error.what());  // not one of those on which all ranks agree here
    }
    fill_descriptor(context, {});
    begin(context);
    const ChunkCount published{group, adopts ? of_pages + 1 : 1};
    if (group.rank == 0) {
        own = report_of([&] {
            // No product of two numbers tells that it is too large.
            if (stride < bytes || stride > SIZE_MAX / group.ranks) throw SystemError(what, ENOMEM);
            memory =
                SharedMemory::create(group.ranks * stride, what, SIZE_MAX, group.waiter.pids());
            return memory->address();
        });
        publish(context, own);
    }
    group.barrier.arrive_and_wait(context.deadline, context);
    if (group.rank != 0) {
        const Report made = report_of_rank(context, 0);
        if (made.code == 0) {
            own = report_of([&] {
                memory = SharedMemory::open(made.text, context.deadline, group.ranks * stride,
                                            group.waiter.kernel());
                return std::string();
            });
        }
        publish(context, own);
    }
    agree(context, own);
    // Every rank has it open by now; without the descriptor no other process can open it.
    memory->close_descriptor();
    fill_page_tables(*memory);
    if (adopts) return adopt(context, std::move(memory), stride, what);
    return group.allocations.add(std::move(memory), stride);
}

}  // namespace ddp::shm
