// System calls, with each failure named. Reads everything before it writes into the caller's
// tensors.
#include "checkpoint/checkpoint_file.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/unique_fd.hpp"
#include "checkpoint/safetensors.hpp"

namespace ddp::checkpoint {

namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

using Path = std::filesystem::path;

std::string text_of(int code) { return std::generic_category().message(code); }

[[noreturn]] void fail(const std::string& what, const Path& path, int code) {
    throw CheckpointError("checkpoint: cannot " + what + " " + path.string() + ": " +
                          text_of(code));
}

void require_cpu(const std::vector<NamedTensor>& state) {
    for (const auto& [name, tensor] : state) {
        if (tensor.device.type == DeviceType::cpu) continue;
        throw CheckpointError("checkpoint: tensor \"" + name + "\" is on " +
                              to_string(tensor.device) + "; copy it to the CPU first");
    }
}

void write_all(int fd, const Path& path, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail("write", path, errno);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

void read_all(int fd, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t got = ::read(fd, bytes.data(), bytes.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw CheckpointError("reading it failed: " + text_of(errno));
        if (got == 0) throw CheckpointError("it became shorter while it was read");
        bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
}

void write_file(const Path& path, const Header& header, const std::vector<NamedTensor>& state) {
    const std::string text = encode(header);
    const std::uint64_t length = text.size();
    const base::UniqueFd fd{
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)};
    if (!fd) fail("create", path, errno);
    write_all(fd.get(), path, std::as_bytes(std::span(&length, 1)));
    write_all(fd.get(), path, std::as_bytes(std::span(text)));
    std::map<std::string, TensorView> by_name;
    for (const auto& [name, tensor] : state) by_name.emplace(name, tensor);
    for (const TensorEntry& entry : header.tensors) {
        const auto* data = static_cast<const std::byte*>(by_name.at(entry.name).data);
        write_all(fd.get(), path, {data, entry.bytes});
    }
}

struct FileContents {
    Header header;
    std::unique_ptr<std::byte[]> data;
};

FileContents read_file(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        throw CheckpointError("looking at it failed: " + text_of(errno));
    }
    if (!S_ISREG(status.st_mode)) throw CheckpointError("it is not a regular file");
    const auto size = static_cast<std::uint64_t>(status.st_size);
    std::uint64_t header_bytes = 0;
    if (size < sizeof header_bytes) throw CheckpointError("it is too short");
    read_all(fd, std::as_writable_bytes(std::span(&header_bytes, 1)));
    if (header_bytes > max_header_bytes || header_bytes > size - sizeof header_bytes) {
        throw CheckpointError("it claims a header of " + std::to_string(header_bytes) +
                              " bytes; the file has " + std::to_string(size));
    }
    std::string text(header_bytes, '\0');
    read_all(fd, std::as_writable_bytes(std::span(text)));
    const std::uint64_t data_bytes = size - sizeof header_bytes - header_bytes;
    FileContents contents{decode(text, data_bytes),
                          std::make_unique_for_overwrite<std::byte[]>(data_bytes)};
    read_all(fd, {contents.data.get(), data_bytes});
    return contents;
}

int epoch_of(const Header& header) {
    const auto format = header.metadata.find("format");
    if (format == header.metadata.end() || format->second != "ddp") {
        throw CheckpointError("it is a safetensors file, but not a checkpoint of ddp");
    }
    const auto found = header.metadata.find("epoch");
    const std::string text = found == header.metadata.end() ? "" : found->second;
    int epoch = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), epoch);
    if (error != std::errc{} || end != text.data() + text.size() || epoch < 0) {
        throw CheckpointError("its epoch is not a number: \"" + text + "\"");
    }
    return epoch;
}

std::string describe(DType dtype, const Shape& shape) {
    return std::string(to_string(dtype)) + " " + to_string(shape);
}

// The entry of each tensor of `state`, in its order; throws when the two sets differ in anything.
std::vector<const TensorEntry*> match(const Header& header, const std::vector<NamedTensor>& state) {
    std::map<std::string, const TensorEntry*> by_name;
    for (const TensorEntry& entry : header.tensors) by_name.emplace(entry.name, &entry);
    std::vector<const TensorEntry*> entries;
    for (const auto& [name, tensor] : state) {
        const auto found = by_name.find(name);
        if (found == by_name.end()) throw CheckpointError("it has no tensor \"" + name + "\"");
        const TensorEntry& entry = *found->second;
        if (entry.dtype != tensor.dtype || entry.shape != tensor.shape) {
            throw CheckpointError("tensor \"" + name + "\" is " +
                                  describe(entry.dtype, entry.shape) + " there and " +
                                  describe(tensor.dtype, tensor.shape) + " in this program");
        }
        entries.push_back(&entry);
        by_name.erase(found);
    }
    if (!by_name.empty()) {
        throw CheckpointError("it has a tensor \"" + by_name.begin()->first +
                              "\" that this program has not");
    }
    return entries;
}

}  // namespace

void write_checkpoint(const Path& dir, int epoch, const std::vector<NamedTensor>& state) {
    require_cpu(state);
    const Header header = plan_header(state, {{"epoch", std::to_string(epoch)}, {"format", "ddp"}});
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) fail("create the folder", dir, error.value());
    const Path path = dir / file_name;
    const Path temporary = dir / (std::string(file_name) + ".tmp");
    try {
        write_file(temporary, header, state);
        if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("replace", path, errno);
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
}

std::optional<int> read_checkpoint(const Path& dir, const std::vector<NamedTensor>& state) {
    require_cpu(state);
    const Path path = dir / file_name;
    // O_NONBLOCK: opening a FIFO would wait for a writer.
    const base::UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (!fd && errno == ENOENT) return std::nullopt;
    if (!fd) fail("open", path, errno);
    try {
        const FileContents contents = read_file(fd.get());
        const int epoch = epoch_of(contents.header);
        const auto entries = match(contents.header, state);
        for (std::size_t i = 0; i < state.size(); ++i) {
            if (entries[i]->bytes == 0) continue;
            std::memcpy(state[i].tensor.data, contents.data.get() + entries[i]->begin,
                        entries[i]->bytes);
        }
        return epoch;
    } catch (const CheckpointError& error) {
        throw CheckpointError("checkpoint: " + path.string() + " cannot be used: " + error.what());
    }
}

}  // namespace ddp::checkpoint
