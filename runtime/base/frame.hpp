// Frames over a byte stream: u32 length (little-endian, of what follows), then that many bytes.
// FrameReader cuts a stream that arrives in pieces back into frames; FrameWriter collects the bytes
// to send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::base {

class FrameReader {
public:
    // A longer frame is a UsageError from next(): a stranger, or a damaged stream.
    explicit FrameReader(std::size_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}
    void feed(std::string_view bytes) { buffer_.append(bytes); }
    std::optional<std::string> next();
    bool is_empty() const { return start_ == buffer_.size(); }  // not even a part of one is here

private:
    std::size_t max_frame_bytes_;
    std::string buffer_;
    std::size_t start_ = 0;
};

void append_frame(std::string& out, std::string_view payload);

// Little-endian numbers and length-prefixed strings inside a payload.
class PayloadWriter {
public:
    PayloadWriter& u8(std::uint8_t);
    PayloadWriter& u32(std::uint32_t);
    PayloadWriter& i64(std::int64_t);
    PayloadWriter& str(std::string_view);
    std::size_t size() const { return bytes_.size(); }  // so far
    std::string take() { return std::move(bytes_); }

private:
    std::string bytes_;
};

// Each throws UsageError when the payload is too short.
class PayloadReader {
public:
    explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}
    std::uint8_t u8();
    std::uint32_t u32();
    std::int64_t i64();
    std::string str();
    bool at_end() const { return bytes_.empty(); }

private:
    std::string_view take(std::size_t count);
    std::string_view bytes_;
};

}  // namespace ddp::base
