// The parts of protocol.md's frames: their types, numbers and texts.
#pragma once

#include "base/frame.hpp"
#include "base/printable.hpp"

#include <ddp/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ddp::launcher {

// A text of a worker; with three of them and all else a frame is far from full.
inline constexpr std::size_t max_text_bytes = std::size_t{1} << 20;
// Of a list of ranks, in a frame of max_link_message_bytes: what is beyond is left out.
inline constexpr std::size_t most_list_bytes = std::size_t{3} << 20;
inline constexpr std::size_t max_words_bytes = 1024;  // of a name, or of some words
inline constexpr std::int64_t max_duration_ns = std::int64_t{1} << 60;  // 36 years

// As messages carry it.
inline std::int64_t clock_ns_of(std::chrono::steady_clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// By protocol.md.
enum class MessageType : std::uint8_t {
    join = 1,
    beat,
    started,
    ended,
    drained,
    vouched,
    progress,
    leave,
    stop_job,
    sighting,
    paces,
    rows,
    timeline,
    stacks,
    threads,
    readings,
    welcome = 65,
    refused,
    wait,
    round,
    stop,
    kill,
    beat_reply,
    vouch,
    look,
    finish,
    say,
    credential,
    show,
    read,
};

[[noreturn]] inline void refuse_message(const std::string& why) {
    throw UsageError("link: " + why);
}

class MessageWriter {
public:
    explicit MessageWriter(MessageType type) { out_.u8(static_cast<std::uint8_t>(type)); }
    MessageWriter& number(std::int64_t value) {
        out_.i64(value);
        return *this;
    }
    MessageWriter& number(std::uint64_t value) { return number(static_cast<std::int64_t>(value)); }
    MessageWriter& number(int value) { return number(std::int64_t{value}); }
    MessageWriter& flag(bool value) { return small(value ? 1 : 0); }
    MessageWriter& small(std::uint8_t value) {
        out_.u8(value);
        return *this;
    }
    MessageWriter& text(std::string_view value) {
        out_.str(value.substr(0, max_text_bytes));
        return *this;
    }
    // What of it is not printable is not told, nor what is too much.
    MessageWriter& words(std::string_view value) {
        return text(base::printable(value, max_words_bytes));
    }
    std::size_t size() const { return out_.size(); }  // so far
    std::string take() { return out_.take(); }

private:
    base::PayloadWriter out_;
};

// Each throws UsageError for what no writer makes.
class MessageReader {
public:
    explicit MessageReader(std::string_view frame) : in_(frame) {}
    MessageType type() { return static_cast<MessageType>(in_.u8()); }
    std::int64_t wide() { return in_.i64(); }
    std::uint64_t unsigned_wide() { return static_cast<std::uint64_t>(in_.i64()); }
    int number(int least = 0) {
        const std::int64_t value = in_.i64();
        if (value < least || value > std::numeric_limits<int>::max())
            refuse_message("a number is outside");
        return static_cast<int>(value);
    }
    std::uint8_t small(std::uint8_t most) {
        const std::uint8_t value = in_.u8();
        if (value > most) refuse_message("a value is none");
        return value;
    }
    bool flag() { return small(1) != 0; }
    std::string text() {
        std::string value = in_.str();
        if (value.size() > max_text_bytes) refuse_message("a text is too long");
        return value;
    }
    std::size_t count(std::size_t most) {
        const std::uint64_t value = unsigned_wide();
        if (value > most) refuse_message("a list is too long");
        return value;
    }
    // As MessageWriter's.
    std::string words() {
        std::string words = in_.str();
        if (words.size() > max_words_bytes || words != base::printable(words)) {
            refuse_message("a name, or some words, are none");
        }
        return words;
    }
    // Not below 0, and at most max_duration_ns.
    std::chrono::nanoseconds duration() {
        const std::int64_t value = in_.i64();
        if (value < 0 || value > max_duration_ns) refuse_message("a duration is none");
        return std::chrono::nanoseconds(value);
    }
    void end() const {
        if (!in_.at_end()) refuse_message("a message is too long");
    }

private:
    base::PayloadReader in_;
};

}  // namespace ddp::launcher
