#include "launcher/hosts/messages/stacks_message.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

constexpr std::size_t most_ranks = 16;
constexpr std::size_t most_threads = 64;  // of a rank, and of a language
constexpr std::size_t most_frames = 2 * ThreadStack::most_frames;

void put(MessageWriter& out, const std::vector<ThreadStack>& threads) {
    out.number(threads.size());
    for (const ThreadStack& thread : threads) {
        out.number(std::int64_t{thread.tid});
        out.words(thread.name);
        out.words(thread.own_frame);
        const std::size_t frames = std::min(thread.frames.size(), most_frames);
        out.number(frames);
        for (std::size_t i = 0; i < frames; ++i) out.words(thread.frames[i]);
    }
}

void put(MessageWriter& out, const RankStacks& one) {
    out.flag(true).number(one.rank).number(std::int64_t{one.pid});
    put(out, one.python);
    put(out, one.native);
    out.flag(one.has_all_native);
    out.words(one.problem);
}

std::vector<ThreadStack> take_threads(MessageReader& in) {
    std::vector<ThreadStack> threads(in.count(most_threads));
    for (ThreadStack& thread : threads) {
        thread.tid = in.number();
        thread.name = in.words();
        thread.own_frame = in.words();
        thread.frames.resize(in.count(most_frames));
        for (std::string& frame : thread.frames) frame = in.words();
    }
    return threads;
}

std::size_t bytes_of(const RankStacks& one) {
    MessageWriter alone(MessageType::stacks);
    put(alone, one);
    return alone.size();
}

}  // namespace

std::string bytes_of(const StacksMessage& message) {
    constexpr std::size_t most_of_one = most_list_bytes / most_ranks;
    MessageWriter out(MessageType::stacks);
    out.number(message.round).number(message.question);
    std::vector<RankStacks> stacks = message.stacks;
    stacks.resize(std::min(stacks.size(), most_ranks));
    for (RankStacks& one : stacks) {
        for (auto* const threads : {&one.python, &one.native}) {
            threads->resize(std::min(threads->size(), most_threads));
        }
        if (bytes_of(one) > most_of_one) {
            for (auto* const threads : {&one.python, &one.native}) {
                threads->resize(std::min<std::size_t>(threads->size(), 1));
            }
            one.has_all_native = false;
        }
        if (bytes_of(one) <= most_of_one) put(out, one);
    }
    return out.flag(false).take();
}

StacksMessage take_stacks_message(MessageReader& in) {
    StacksMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    while (in.flag()) {
        if (message.stacks.size() == most_ranks) refuse_message("stacks are of too many ranks");
        RankStacks& one = message.stacks.emplace_back();
        one.rank = in.number();
        one.pid = in.number();
        one.python = take_threads(in);
        one.native = take_threads(in);
        one.has_all_native = in.flag();
        one.problem = in.words();
    }
    return message;
}

}  // namespace ddp::launcher
