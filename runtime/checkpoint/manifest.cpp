// Lines of `key value` in a fixed order; the last one is the checksum of the others.
#include "checkpoint/manifest.hpp"

#include <ddp/error.hpp>

#include <array>
#include <charconv>
#include <cstdio>
#include <span>

#include "checkpoint/crc.hpp"

namespace ddp::checkpoint {

namespace {

constexpr std::string_view first_line = "ddp checkpoint 1\n";

std::string hex(std::uint32_t number) {
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08x", number);
    return text.data();
}

std::string last_line(std::string_view text) {
    return "crc32c " + hex(crc32c(std::as_bytes(std::span(text)))) + "\n";
}

// The value of the line `key value`, which must be the next.
std::string_view take_line(std::string_view& text, std::string_view key) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (end == std::string_view::npos || !line.starts_with(key) || line.size() <= key.size() ||
        line[key.size()] != ' ') {
        throw CheckpointError("it has no line \"" + std::string(key) + "\" where one belongs");
    }
    text.remove_prefix(end + 1);
    return line.substr(key.size() + 1);
}

template <class T>
void take_number(std::string_view& text, std::string_view key, T& number, int base = 10) {
    const std::string_view value = take_line(text, key);
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), number, base);
    if (error != std::errc{} || end != value.data() + value.size() || number < T{0}) {
        throw CheckpointError("its " + std::string(key) + " is not a number: \"" +
                              std::string(value) + "\"");
    }
}

}  // namespace

std::string encode(const Manifest& manifest) {
    std::string text{first_line};
    const auto add = [&](const char* key, const std::string& value) {
        text.append(key).append(" ").append(value).append("\n");
    };
    add("epoch", std::to_string(manifest.progress.epoch));
    add("samples", std::to_string(manifest.progress.samples));
    add("step", std::to_string(manifest.progress.step));
    add("file", manifest.file);
    add("bytes", std::to_string(manifest.bytes));
    add("checksum", hex(manifest.crc));
    return text + last_line(text);
}

Manifest decode_manifest(std::string_view text) {
    const std::string_view whole = text;
    if (!text.starts_with(first_line)) {
        throw CheckpointError("it is not a manifest of version 1 of a checkpoint of ddp");
    }
    text.remove_prefix(first_line.size());
    Manifest manifest;
    take_number(text, "epoch", manifest.progress.epoch);
    take_number(text, "samples", manifest.progress.samples);
    take_number(text, "step", manifest.progress.step);
    manifest.file = take_line(text, "file");
    take_number(text, "bytes", manifest.bytes);
    take_number(text, "checksum", manifest.crc, 16);
    if (text != last_line(whole.substr(0, whole.size() - text.size()))) {
        throw CheckpointError("its last line is not the checksum of the others");
    }
    if (encode(manifest) != whole) throw CheckpointError("a number in it is written strangely");
    return manifest;
}

}  // namespace ddp::checkpoint
