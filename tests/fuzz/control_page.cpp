// What workers can do to the control region: a worker attaches to a descriptor and a text that may
// be anything, and the agent reads pages, and a header, that workers may have written over. Input:
// which of the two, then the bytes.
#include "contract/control_page.hpp"
#include "base/unique_fd.hpp"
#include "fuzz/seeds.hpp"
#include "launcher/agent/attempt/progress_watch.hpp"
#include "launcher/verdict/hang_judge.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace {

using namespace ddp::contract;

constexpr int ranks = 3;
constexpr std::size_t region_bytes = control_header_bytes + ranks * control_page_bytes;

// A worker: the descriptor holds the bytes, the handed-over text is before them, up to a newline.
void attach(std::string_view bytes) {
    const std::size_t newline = std::min(bytes.find('\n'), bytes.size());
    std::string text(bytes.substr(0, newline));
    bytes.remove_prefix(std::min(newline + 1, bytes.size()));
    const int fd = ::memfd_create("control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ::ftruncate(fd, region_bytes) != 0) std::abort();
    if (::pwrite(fd, bytes.data(), bytes.size(), 0) < 0) std::abort();
    ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    // 'F' stands for the descriptor's number; others are not this test's.
    const std::size_t letter = text.find('F');
    if (letter == 0) text.replace(0, 1, std::to_string(fd));
    const bool names_it = letter == 0 && text.find(':') == std::to_string(fd).size();
    for (const int rank : {-1, 0, ranks - 1, ranks}) {
        const auto region =
            ControlRegion::attach(names_it ? std::optional(text) : std::nullopt, rank);
        region.own_page().step.store(1);
        region.header().abort_word.load();
        region.lease_holds(std::chrono::steady_clock::now());
        if (region.shared()) return;  // which closed it
    }
    ::close(fd);
}

// The agent, of whose region workers have written over some part: where, and what.
void read_pages(ddp::fuzz::Input input) {
    const auto region = ControlRegion::create(ranks);
    auto* const memory = reinterpret_cast<char*>(&region.header());
    while (!input.is_empty()) {
        const std::size_t place = (input.byte() | std::size_t{input.byte()} << 8) % region_bytes;
        const std::string_view bytes =
            input.text(std::min<std::size_t>(input.byte() % 64 + 1, region_bytes - place));
        std::memcpy(memory + place, bytes.data(), bytes.size());
    }
    ddp::launcher::slowest(region, 0);
    std::vector<ddp::launcher::RankState> states(ranks);
    ddp::launcher::UsualTimes usual;
    for (int rank = 0; rank < ranks; ++rank) {
        ddp::launcher::RankState& state = states[static_cast<std::size_t>(rank)];
        state.rank = rank;
        state.record = read_page(region.page(rank));
        for (const OperationRecord& operation : state.record.operations) usual.note(operation, {});
    }
    ddp::launcher::judge(states, usual, std::chrono::steady_clock::now());
}

std::string bytes_of(const void* data, std::size_t size) {
    return {static_cast<const char*>(data), size};
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    const auto region = ControlRegion::create(ranks);
    region.page(0).step = 640;
    region.page(0).steps_per_second = 12.5;
    region.page(1).step = 641;
    const std::string handed = region.handover(7);  // "7:cookie"
    const std::string text = "F" + handed.substr(1) + "\n";
    const std::string header = bytes_of(&region.header(), 64);
    return {
        std::string(1, '\0') + text + header,
        std::string(1, '\0') + text + header + bytes_of(&region.page(0), 256),
        std::string("\1\0\x10\x3f", 4) + bytes_of(&region.page(0), 64),
        std::string("\1\0\0\x3f", 4) + header,
        std::string("\1\x0c\0\x03\xff\xff\xff\x7f", 8),                               // local ranks
        std::string(1, '\0') + text + header.substr(0, 32) + std::string(8, '\x7f'),  // the lease
    };
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    if (input.byte() % 2 == 0) {
        attach(input.rest());
    } else {
        read_pages(input);
    }
    return 0;
}
