// What a rank finds where the store says that its group's region is: any text, and memory of the
// right kind with any header. Input: which of the two, then the text or the header's bytes.
#include "backends/shm/region/shared_region.hpp"
#include "base/deadline.hpp"
#include "fuzz/seeds.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace {

using namespace ddp::shm;

constexpr int ranks = 2;
constexpr std::size_t page = 4096;

struct Made {
    std::shared_ptr<SharedRegion> region =
        SharedRegion::create(ranks, make_tuning(ranks, 2, "chunk_bytes=4K"));
    MemoryAddress address = MemoryAddress::parse(region->address()).value();
    // The label's page and that of the header after it.
    std::string begin = std::string(2 * page, '\0');
    off_t size = 0;

    Made() {
        struct stat status {};
        if (::fstat(address.fd, &status) != 0) std::abort();
        size = status.st_size;
        if (::pread(address.fd, begin.data(), begin.size(), 0) < 0) std::abort();
    }
};
const Made& made() {
    static const Made the_one;
    return the_one;
}

void open_at(const std::string& address) {
    try {
        const auto region = SharedRegion::open(address, ranks, ddp::base::Deadline::after({}));
        // All that the layout says is there can be touched.
        region->slot(ranks, 3)[region->slot_bytes() - 1] = std::byte{1};
        region->channel_slot(1, 1, 3)[region->channel_slot_bytes() - 1] = std::byte{1};
        region->introduce(1);
    } catch (const ddp::UsageError&) {
        return;
    } catch (const ddp::SystemError&) {
        return;
    }
}

// The first `label` bytes are the label's, the others the header's.
void open_memory(std::string_view bytes) {
    std::string begin = made().begin;
    const std::string_view label = bytes.substr(0, 24);
    begin.replace(0, label.size(), label);
    const std::string_view header = bytes.substr(label.size(), page);
    begin.replace(page, header.size(), header);
    const int fd = ::memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ::ftruncate(fd, made().size) != 0) std::abort();
    if (::pwrite(fd, begin.data(), begin.size(), 0) < 0) std::abort();
    ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    MemoryAddress address = made().address;
    address.fd = fd;
    open_at(address.to_text());
    ::close(fd);
}

// Only processes that are this one, or none, are asked.
void open_text(const std::string& text) {
    const auto address = MemoryAddress::parse(text);
    if (address) {
        const auto again = MemoryAddress::parse(address->to_text());
        if (!again || again->to_text() != address->to_text()) std::abort();
    }
    if (!address || address->creator == ::getpid() || address->creator > (1 << 22)) open_at(text);
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    const std::string& begin = made().begin;
    const std::string label = begin.substr(0, 24);
    const std::string header = begin.substr(page, sizeof(RegionHeader));
    return {
        std::string(1, '\0') + label + header,
        std::string(1, '\0') + label,
        "\1" + made().region->address(),
        "\1"
        "4194304 3 12345678901234567890 -",
        "\1"
        "1 2 3 ddp-region-18446744073709551615",
    };
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    if (input.byte() % 2 == 0) {
        open_memory(input.rest());
    } else {
        open_text(std::string(input.rest()));
    }
    return 0;
}
