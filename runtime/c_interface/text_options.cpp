#include "c_interface/text_options.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <locale>
#include <optional>
#include <sstream>
#include <string_view>
#include <type_traits>

namespace ddp::c_interface {
namespace {

// Whatever the program's locale.
std::optional<double> real_number(const std::string& text) {
    std::istringstream stream(text);
    stream.imbue(std::locale::classic());
    double value = 0;
    stream >> std::noskipws >> value;
    if (stream.fail() || !stream.eof() || !std::isfinite(value)) return std::nullopt;
    return value;
}

}  // namespace

TextOptions::TextOptions(const char* function, const char* text) : function_(function) {
    std::string_view rest = text != nullptr ? text : "";
    while (!rest.empty()) {
        const std::string_view one = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(one.size() + 1, rest.size()));
        const std::size_t sign = one.find('=');
        if (sign == 0 || sign == one.npos) {
            throw UsageError(function_ + ": option '" + std::string(one) +
                             "' is not name=value; several are parted by commas");
        }
        const std::string name(one.substr(0, sign));
        if (!given_.emplace(name, one.substr(sign + 1)).second) {
            throw UsageError(function_ + ": option " + name + " is given twice");
        }
    }
}

bool TextOptions::take(const std::string& name, std::string& text) {
    known_ += (known_.empty() ? "" : ", ") + name;
    const auto found = given_.find(name);
    if (found == given_.end()) return false;
    text = found->second;
    given_.erase(found);
    return true;
}

void TextOptions::refuse(const std::string& name, const std::string& text,
                         const std::string& wanted) const {
    throw UsageError(function_ + ": option " + name + " is '" + text + "', not " + wanted);
}

void TextOptions::read(const std::string& name, bool& value) {
    std::string text;
    if (!take(name, text)) return;
    value = text == "1" || text == "true";
    if (!value && text != "0" && text != "false") refuse(name, text, "0 or 1");
}

template <class Number>
void TextOptions::read_whole(const std::string& name, Number& value) {
    std::string text;
    if (!take(name, text)) return;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec == std::errc() && result.ptr == end) return;
    refuse(name, text, std::is_signed_v<Number> ? "a whole number" : "a whole number from 0");
}

void TextOptions::read(const std::string& name, std::size_t& value) { read_whole(name, value); }
void TextOptions::read(const std::string& name, std::int64_t& value) { read_whole(name, value); }

void TextOptions::read(const std::string& name, double& value) {
    std::string text;
    if (!take(name, text)) return;
    const auto number = real_number(text);
    if (!number) refuse(name, text, "a number");
    value = *number;
}

void TextOptions::read(const std::string& name, std::string& value) { take(name, value); }

void TextOptions::read(const std::string& name, std::chrono::milliseconds& value) {
    double seconds = std::chrono::duration<double>(value).count();
    read(name, seconds);
    constexpr double most = 1e9;  // thirty years
    if (!(seconds >= 0.001 && seconds <= most)) {
        throw UsageError(function_ + ": option " + name + " is a time in seconds, above 0");
    }
    value = std::chrono::milliseconds(std::llround(seconds * 1000));
}

void TextOptions::finish() const {
    if (given_.empty()) return;
    throw UsageError(function_ + ": there is no option " + given_.begin()->first +
                     "; there are: " + known_);
}

}  // namespace ddp::c_interface
