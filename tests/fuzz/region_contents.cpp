// What a peer can have written into the region while the group lives: its block, its counts, its
// channels. One rank makes a call beside it and must end it with a result or an error. Input: the
// call, the peer's process, then what lies where the peer writes.
#include "backends/shm/shm_backend.hpp"
#include "base/deadline.hpp"
#include "fuzz/seeds.hpp"

#include <ddp/error.hpp>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using namespace ddp::shm;
using ddp::backends::Call;
using ddp::backends::Collective;
using ddp::backends::Direction;

constexpr int ranks = 2;
constexpr int transfer = 16;  // of the calls; below, a Collective
constexpr std::size_t most_elements = 4096;

std::shared_ptr<SharedRegion> make_region() {
    return SharedRegion::create(
        ranks,
        make_tuning(ranks, 2,
                    "chunk_bytes=4K,one_phase_bytes=1K,direct_bytes_min=2K,direct_bytes_max=1M"));
}

// Where the peer, rank 1, writes. The last is of rank 0: its receiver's count.
std::vector<std::span<std::byte>> places(const SharedRegion& region) {
    const auto bytes = [](auto& object) {
        return std::span(reinterpret_cast<std::byte*>(&object), sizeof object);
    };
    const auto counts = [&](std::uint64_t parity) {
        return std::span(reinterpret_cast<std::byte*>(region.parts(1, parity)),
                         2 * ranks * sizeof(std::uint64_t));
    };
    return {bytes(region.block(1)),
            counts(0),
            counts(1),
            bytes(region.channel(1, 0)),
            bytes(region.channel(0, 1)),
            {region.channel_slot(1, 0, 0), 64},
            {region.slot(1, 0), 64},
            bytes(region.abort_word())};
}

std::string contents(const SharedRegion& region) {
    std::string all;
    for (const auto place : places(region)) {
        all.append(reinterpret_cast<const char*>(place.data()), place.size());
    }
    return all;
}

// One rank's side of it, with memory of its own.
struct Side {
    std::vector<std::byte> input = std::vector<std::byte>(ranks * most_elements, std::byte{1});
    std::vector<std::byte> output = std::vector<std::byte>(ranks * most_elements);

    void run(ShmBackend& backend, int rank, int what, std::size_t elements,
             const ddp::base::Deadline& deadline) {
        if (what >= transfer) return receive(backend, rank, elements, deadline);
        Call call{.kind = static_cast<Collective>(what),
                  .dtype = ddp::DType::uint8,
                  .root = static_cast<int>(elements / 2 % ranks),
                  .elements = elements,
                  .input = input.data(),
                  .output = output.data()};
        if (call.kind == Collective::allocate || call.kind == Collective::adopt) {
            backend.provide_memory(call, 1, deadline);
            return;
        }
        if (call.kind == Collective::all_to_all && elements % 2 == 1) {
            call.parts = std::make_shared<const ddp::backends::Parts>(
                ddp::backends::Parts{{elements / 2, elements / 2}, {elements / 2, elements / 2}});
            call.elements = 0;
        }
        backend.run(call, 1, deadline);
    }
    void receive(ShmBackend& backend, int rank, std::size_t elements,
                 const ddp::base::Deadline& deadline) {
        const auto direction = rank == 0 ? Direction::receive : Direction::send;
        const auto pending = backend.start_transfer({direction, 1 - rank, output.data(), elements});
        while (!pending->is_done()) {
            if (pending->advance()) continue;
            if (deadline.passed()) pending->give_up(deadline);
        }
    }
};

// A process that is this user's and does nothing, for the peer's pid.
pid_t idle_process() {
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (::getppid() == parent) ::pause();
    ::_exit(0);
}

struct Game {
    std::shared_ptr<SharedRegion> region = make_region();
    std::string fresh = contents(*region);
    pid_t idle = idle_process();
    Side side;

    void lay_out(std::string_view bytes) {
        for (const auto place : places(*region)) {
            const std::size_t count = std::min(place.size(), bytes.size());
            std::memcpy(place.data(), bytes.data(), count);
            bytes.remove_prefix(count);
        }
    }
    // Other processes of this machine are none to play with; and nobody is waited for.
    void settle(std::uint8_t choice) {
        const std::array<pid_t, 5> pids{idle, 0, -1, ::getpid(), INT32_MAX};
        region->block(1).pid = pids[choice < 250 ? 0 : choice % pids.size()];
        for (auto& descriptor : region->block(1).descriptors) {
            descriptor.line.arrived = 0x40000000;
        }
        // Rank 0's own begins anew.
        auto* const own = reinterpret_cast<std::byte*>(&region->block(0));
        std::memset(own, 0, sizeof(RankBlock));
        region->introduce(0);
    }
};

// What the peer has written when both have done it right.
std::string recorded(int what, std::size_t elements) {
    const auto region = make_region();
    for (int rank = 0; rank < ranks; ++rank) region->introduce(rank);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&region, rank, what, elements] {
            Side side;
            ShmBackend backend(region, rank);
            side.run(backend, rank, what, elements,
                     ddp::base::Deadline::after(std::chrono::seconds(30)));
        });
    }
    for (std::thread& thread : threads) thread.join();
    return contents(*region);
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    std::vector<std::string> all;
    const auto record = [&](int what, std::size_t elements) {
        const std::string numbers{static_cast<char>(what), static_cast<char>(elements & 0xff),
                                  static_cast<char>(elements >> 8), '\0'};
        all.push_back(numbers + recorded(what, elements));
    };
    for (const std::size_t elements : {100U, 102U, 2000U, 2002U, 4095U}) {
        for (int what = 0; what <= static_cast<int>(Collective::adopt); ++what) {
            record(what, elements);
        }
        record(transfer, elements);
    }
    return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Game game;
    ddp::fuzz::Input input(data, size);
    const int what = input.byte() % (transfer + 1);
    const std::size_t low = input.byte();
    const std::size_t elements = (low | std::size_t{input.byte()} << 8) % most_elements;
    if (what > static_cast<int>(Collective::adopt) && what < transfer) return 0;
    const std::uint8_t choice = input.byte();
    game.lay_out(game.fresh);
    game.lay_out(input.rest());
    game.settle(choice);
    try {
        ShmBackend backend(game.region, 0);
        game.side.run(backend, 0, what, elements, ddp::base::Deadline::after({}));
    } catch (const ddp::Error&) {
        return 0;
    }
    return 0;
}
