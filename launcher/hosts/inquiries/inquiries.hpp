// Inquiries: all that the coordinator asks the hosts of a round about their ranks, and what they
// tell of them unasked. Pure.
#pragma once

#include "launcher/hosts/inquiries/hang_inquiry.hpp"
#include "launcher/hosts/inquiries/row_inquiry.hpp"
#include "launcher/hosts/inquiries/silent_inquiry.hpp"
#include "launcher/hosts/inquiries/slow_inquiry.hpp"
#include "launcher/options/option_kinds.hpp"

#include <chrono>
#include <optional>
#include <variant>

namespace ddp::launcher {

struct Inquiries {
    Inquiries(OnHang when_hanging, std::chrono::milliseconds stands)
        : on_hang(when_hanging), hangs(when_hanging, stands) {}

    void begin_round(const RoundMessage& round) {
        hangs.begin_round(round);
        slow.begin_round(round);
        silent.begin_round(round);
        rows.begin_round(round);
    }
    // Whether it is one of those that are told here.
    bool note(HangInquiry::Time now, MemberId by, const FromMember& message) {
        if (const auto* sighting = std::get_if<SightingMessage>(&message)) {
            hangs.note(by, *sighting);
            silent.note(*sighting);
        } else if (const auto* stacks = std::get_if<StacksMessage>(&message)) {
            hangs.note(by, *stacks);
        } else if (const auto* told = std::get_if<RowsMessage>(&message)) {
            rows.note(by, *told);
        } else if (const auto* paces = std::get_if<PacesMessage>(&message)) {
            if (on_hang != OnHang::ignore) slow.note(now, by, *paces);
        } else if (const auto* threads = std::get_if<ThreadsMessage>(&message)) {
            if (on_hang != OnHang::ignore) silent.note(now, by, *threads);
        } else if (const auto* readings = std::get_if<ReadingsMessage>(&message)) {
            silent.note(by, *readings);
        } else if (const auto* end = std::get_if<EndedMessage>(&message)) {
            silent.note(by, *end);
        } else {
            return false;
        }
        return true;
    }
    // Who slows down the job.
    const std::optional<SlowFacts>& slow_facts() const {
        return slow.facts() ? slow.facts() : silent.slow();
    }

    OnHang on_hang;
    HangInquiry hangs;
    SlowInquiry slow;
    SilentInquiry silent;
    RowInquiry rows;
};

}  // namespace ddp::launcher
