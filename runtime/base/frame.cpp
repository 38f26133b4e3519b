#include "base/frame.hpp"

#include <ddp/error.hpp>

namespace ddp::base {
namespace {

template <class T>
void put(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
        out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
    }
}

template <class T>
T take_number(std::string_view bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return static_cast<T>(value);
}

constexpr std::size_t length_bytes = sizeof(std::uint32_t);

}  // namespace

std::optional<std::string> FrameReader::next() {
    const std::string_view rest = std::string_view(buffer_).substr(start_);
    if (rest.size() < length_bytes) return std::nullopt;
    const std::size_t length = take_number<std::uint32_t>(rest);
    if (length > max_frame_bytes_) {
        throw UsageError("frame of " + std::to_string(length) + " bytes; at most " +
                         std::to_string(max_frame_bytes_) + " are allowed");
    }
    if (rest.size() < length_bytes + length) return std::nullopt;
    std::string payload(rest.substr(length_bytes, length));
    start_ += length_bytes + length;
    if (start_ == buffer_.size() || start_ > buffer_.size() / 2) {
        buffer_.erase(0, start_);  // amortised: at most one move of a byte for each byte read
        start_ = 0;
    }
    return payload;
}

void append_frame(std::string& out, std::string_view payload) {
    put(out, static_cast<std::uint32_t>(payload.size()));
    out.append(payload);
}

PayloadWriter& PayloadWriter::u8(std::uint8_t value) { return put(bytes_, value), *this; }
PayloadWriter& PayloadWriter::u32(std::uint32_t value) { return put(bytes_, value), *this; }
PayloadWriter& PayloadWriter::i64(std::int64_t value) { return put(bytes_, value), *this; }

PayloadWriter& PayloadWriter::str(std::string_view text) {
    put(bytes_, static_cast<std::uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
}

std::string_view PayloadReader::take(std::size_t count) {
    if (count > bytes_.size()) throw UsageError("frame payload ends too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
}

std::uint8_t PayloadReader::u8() { return take_number<std::uint8_t>(take(1)); }
std::uint32_t PayloadReader::u32() { return take_number<std::uint32_t>(take(4)); }
std::int64_t PayloadReader::i64() { return take_number<std::int64_t>(take(8)); }
std::string PayloadReader::str() { return std::string(take(u32())); }

}  // namespace ddp::base
