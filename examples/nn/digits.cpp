// zlib reads the file, whole; then each line must have exactly 64 whole numbers 0 to 16 and one 0
// to 9.
#include "nn/digits.hpp"

#include <ddp/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>

#include "nn/mlp.hpp"

namespace nn {

namespace {

constexpr int max_pixel = 16;
constexpr int max_label = 9;

struct CloseGz {
    void operator()(gzFile_s* file) const { gzclose_r(file); }
};

std::string read_gz(const std::filesystem::path& path) {
    const std::unique_ptr<gzFile_s, CloseGz> file{gzopen(path.c_str(), "rbe")};
    if (!file) {
        throw ddp::UsageError("digits: cannot open " + path.string() + ": " + std::strerror(errno) +
                              "; say where the data is with --data DIR");
    }
    std::string text;
    std::array<char, 65536> piece{};
    for (;;) {
        const int got = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
        if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
        if (got <= 0) break;
    }
    int error = Z_OK;  // also set when the file ends too early
    const char* message = gzerror(file.get(), &error);
    if (error != Z_OK) {
        throw ddp::UsageError("digits: " + path.string() + " is damaged: " +
                              (error == Z_ERRNO ? std::strerror(errno) : message));
    }
    return text;
}

// Takes the text up to the next `separator`, or the rest, off the front of `text`.
std::string_view take(std::string_view& text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return piece;
}

int parse_number(std::string_view text, std::size_t field) {
    const int max = field < Digits::pixels ? max_pixel : max_label;
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number < 0 || number > max) {
        throw ddp::UsageError("field " + std::to_string(field + 1) + " is '" + std::string(text) +
                              "', not a whole number from 0 to " + std::to_string(max));
    }
    return number;
}

}  // namespace

void Digits::add_line(std::string_view line) {
    const auto fields = static_cast<std::size_t>(std::ranges::count(line, ',')) + 1;
    if (fields != pixels + 1) {
        throw ddp::UsageError("it has " + std::to_string(fields) +
                              " fields; 64 pixels and a label are needed");
    }
    for (std::size_t field = 0; field < pixels; ++field) {
        const int pixel = parse_number(take(line, ','), field);
        samples_.images.push_back(static_cast<float>(pixel) / max_pixel);
    }
    samples_.labels.push_back(parse_number(line, pixels));
}

Digits Digits::load(const std::filesystem::path& dir) {
    const std::filesystem::path path = dir / file_name;
    const std::string text = read_gz(path);
    Digits digits;
    std::size_t line = 1;
    try {
        for (std::string_view rest = text; !rest.empty(); ++line) {
            digits.add_line(take(rest, '\n'));
        }
    } catch (const ddp::UsageError& error) {
        throw ddp::UsageError("digits: line " + std::to_string(line) + " of " + path.string() +
                              " is wrong: " + error.what());
    }
    if (digits.size() == 0) throw ddp::UsageError("digits: " + path.string() + " is empty");
    return digits;
}

void Digits::add_sample(const Digits& from, std::size_t index) {
    const auto first = from.samples_.images.begin() + static_cast<std::ptrdiff_t>(index * pixels);
    samples_.images.insert(samples_.images.end(), first, first + pixels);
    samples_.labels.push_back(from.samples_.labels[index]);
}

std::pair<Digits, Digits> Digits::split_every(std::size_t n) const {
    std::pair<Digits, Digits> parts;
    for (std::size_t i = 0; i < size(); ++i) {
        (i % n == 0 ? parts.second : parts.first).add_sample(*this, i);
    }
    return parts;
}

Digits::Batch Digits::batch(std::span<const std::size_t> indices) const {
    Digits chosen;
    chosen.samples_.images.reserve(indices.size() * pixels);
    chosen.samples_.labels.reserve(indices.size());
    for (const std::size_t index : indices) chosen.add_sample(*this, index);
    return std::move(chosen.samples_);
}

double accuracy(Mlp& net, const Digits& test) {
    const auto& [images, labels] = test.all();
    const auto predicted = net.predict(images);
    std::size_t right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) right += predicted[i] == labels[i] ? 1 : 0;
    return static_cast<double>(right) / static_cast<double>(labels.size());
}

}  // namespace nn
