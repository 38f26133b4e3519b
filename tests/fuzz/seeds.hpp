// What every fuzzer of this folder has beside libFuzzer's entry: inputs to begin with. They come
// from the code that writes such bytes, or from a conversation that it holds with itself, so that
// they stay right when the format changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fuzz {

// The fuzzer's own, in its source.
std::vector<std::string> seeds();

// An input cut into numbers and texts; there is always more, of zeros.
class Input {
public:
    Input(const std::uint8_t* data, std::size_t size)
        : bytes_(reinterpret_cast<const char*>(data), size) {}

    std::uint8_t byte() {
        const std::string_view taken = text(1);
        return taken.empty() ? 0 : static_cast<std::uint8_t>(taken[0]);
    }
    std::string_view text(std::size_t most) {
        const std::string_view taken = bytes_.substr(0, most);
        bytes_.remove_prefix(taken.size());
        return taken;
    }
    std::string_view rest() { return text(bytes_.size()); }
    bool is_empty() const { return bytes_.empty(); }

private:
    std::string_view bytes_;
};

}  // namespace ddp::fuzz
