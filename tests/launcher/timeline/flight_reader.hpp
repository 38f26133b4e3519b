// Reads a flight record as Python's pickle does, into the same value as JSON. What it does not know
// of the language fails the test.
#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::launcher::testing {

class PickleReader {
public:
    explicit PickleReader(std::string_view text) : text_(text) {}

    nlohmann::json run() {
        EXPECT_EQ(text_.substr(0, 2), "\x80\x02");
        at_ = 2;
        while (at_ < text_.size() && text_[at_] != '.') step(text_[at_++]);
        EXPECT_EQ(at_ + 1, text_.size()) << "ends with STOP";
        EXPECT_EQ(stack_.size(), 1U);
        return stack_.empty() ? nlohmann::json() : stack_.back();
    }

private:
    template <class Number>
    Number take() {
        Number number{};
        if (text_.size() - at_ < sizeof number) {
            ADD_FAILURE() << "cut off at " << at_;
            at_ = text_.size();
            return number;
        }
        std::memcpy(&number, text_.data() + at_, sizeof number);
        at_ += sizeof number;
        return number;
    }
    // What has been pushed since the last MARK.
    std::vector<nlohmann::json> take_marked() {
        const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<nlohmann::json> items(from, stack_.end());
        stack_.erase(from, stack_.end());
        marks_.pop_back();
        return items;
    }
    void step(char instruction) {
        switch (instruction) {
            case '}':
                return stack_.push_back(nlohmann::json::object());
            case ']':
                return stack_.push_back(nlohmann::json::array());
            case '(':
                return marks_.push_back(stack_.size());
            case 'u': {
                const auto items = take_marked();
                for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
                    stack_.back()[items[i].get<std::string>()] = items[i + 1];
                }
                return;
            }
            case 'e': {
                for (auto& item : take_marked()) stack_.back().push_back(std::move(item));
                return;
            }
            case 'X': {
                const auto size = take<std::uint32_t>();
                stack_.emplace_back(std::string(text_.substr(at_, size)));
                at_ += size;
                return;
            }
            case 'N':
                return stack_.push_back(nullptr);
            case '\x88':
                return stack_.push_back(true);
            case '\x89':
                return stack_.push_back(false);
            case '\x8a': {
                EXPECT_EQ(take<std::uint8_t>(), 9);
                const auto low = take<std::uint64_t>();
                const auto high = take<std::int8_t>();
                EXPECT_TRUE(high == 0 || high == -1);
                if (high == 0) return stack_.push_back(low);
                return stack_.push_back(static_cast<std::int64_t>(low));
            }
            default:
                ADD_FAILURE() << "an instruction that it does not know: " << int{instruction};
                at_ = text_.size();
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::vector<nlohmann::json> stack_;
    std::vector<std::size_t> marks_;
};

inline nlohmann::json read_flight_record(std::string_view text) { return PickleReader(text).run(); }

}  // namespace ddp::launcher::testing
