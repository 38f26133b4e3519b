#include "explorer/explorer.hpp"

#include "explorer/fiber.hpp"

#include <array>
#include <optional>
#include <ostream>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

namespace explorer {
namespace {

const char* name_of(std::memory_order order) {
    switch (order) {
        case std::memory_order_relaxed:
            return "relaxed";
        case std::memory_order_consume:
            return "consume";
        case std::memory_order_acquire:
            return "acquire";
        case std::memory_order_release:
            return "release";
        case std::memory_order_acq_rel:
            return "acq_rel";
        case std::memory_order_seq_cst:
            return "seq_cst";
    }
    return "?";
}

const char* name_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::passed:
            return "passed";
        case Verdict::assertion:
            return "assertion";
        case Verdict::deadlock:
            return "deadlock";
        case Verdict::data_race:
            return "data race";
        case Verdict::too_long:
            return "too long a run";
        case Verdict::too_many:
            return "too many states";
    }
    return "?";
}

struct Thread {
    Fiber fiber;
    std::uint64_t history = 0;  // a digest of all that its operations have returned
    // In a futex call on that location.
    std::optional<std::size_t> parked_on;
    // In spin_until: the locations that its last look read.
    bool looks = false;
    std::vector<std::size_t> looked_at;
    bool spins = false;  // until one of these has a later message
};

struct Event {
    std::size_t thread;
    const char* name;
    std::optional<std::size_t> location;
    std::uint64_t value;
    std::memory_order order;
};

std::string text_of(const Event& event) {
    std::string text = "thread " + std::to_string(event.thread) + ": " + event.name;
    if (event.location) {
        text += " of " + std::to_string(*event.location) + ": " + std::to_string(event.value);
    }
    return text + ", " + name_of(event.order) + "\n";
}

class Explorer {
public:
    Explorer(const std::function<void(Program&)>& make, const Options& options)
        : make_(make), options_(options) {
        outer_ = std::exchange(current_, this);
    }
    ~Explorer() { current_ = outer_; }
    Explorer(const Explorer&) = delete;
    Explorer& operator=(const Explorer&) = delete;

    Result explore() {
        do {
            run_once();
            ++result_.runs;
        } while (result_.verdict == Verdict::passed && next_run());
        result_.states = visited_.size();
        return std::move(result_);
    }

    // The operations: each waits for its turn first.
    std::uint64_t load(std::size_t location, std::memory_order order) {
        take_turn();
        const std::uint64_t value =
            at_end_ ? memory_.latest(location) : memory_.load(running_, location, order, chooser());
        if (!at_end_ && threads_[running_].looks) {
            threads_[running_].looked_at.push_back(location);
        }
        return done(value, "load", location, order);
    }
    void store(std::size_t location, std::uint64_t value, std::memory_order order) {
        take_turn();
        memory_.store(running_, location, value, order, chooser());
        done(value, "store", location, order);
    }
    std::uint64_t read_modify_write(std::size_t location, const Memory::Update& update,
                                    Memory::Orders orders, const char* name) {
        take_turn();
        const std::uint64_t before =
            memory_.read_modify_write(running_, location, update, orders, chooser());
        return done(before, name, location, orders.success);
    }
    void fence(std::memory_order order) {
        take_turn();
        memory_.fence(running_, order);
        done("fence", order);
    }
    void light_fence() {
        take_turn();
        memory_.light_fence(running_);
        done("light fence", std::memory_order_seq_cst);
    }
    void heavy_fence() {
        take_turn();
        memory_.heavy_fence(running_);
        done("heavy fence", std::memory_order_seq_cst);
    }
    void park(std::size_t location, std::uint64_t expected) {
        take_turn();
        memory_.enter_kernel(running_, location);
        const std::uint64_t value =
            memory_.load(running_, location, std::memory_order_relaxed, chooser());
        memory_.leave_kernel(running_, location);
        done(value, value == expected ? "sleeps at" : "does not sleep at", location,
             std::memory_order_relaxed);
        if (value != expected) return;
        threads_[running_].parked_on = location;
        take_turn();
        done("wakes", std::memory_order_relaxed);
    }
    void wake_all(std::size_t location) {
        take_turn();
        memory_.enter_kernel(running_, location);
        memory_.leave_kernel(running_, location);
        for (std::size_t i = 0; i < program_.threads.size(); ++i) {
            if (threads_[i].parked_on == location) threads_[i].parked_on.reset();
        }
        done(0, "wake all", location, std::memory_order_relaxed);
    }
    void spin_until(const std::function<bool()>& ready) {
        Thread& thread = threads_[running_];
        const std::uint64_t history = thread.history;
        for (;;) {
            thread.looked_at.clear();
            thread.looks = true;
            const bool is_ready = ready();
            thread.looks = false;
            if (is_ready) return;
            thread.history = history;
            // A fruitless look at what is old leads nowhere that a look later would not.
            for (const std::size_t location : thread.looked_at) {
                if (!memory_.sees_latest(running_, location)) drop_run();
            }
            thread.spins = true;
            take_turn();
            thread.spins = false;
        }
    }
    std::uint64_t read_variable(std::size_t variable) {
        std::uint64_t value = 0;
        const bool is_ordered = memory_.read_plain(running_, variable, value);
        if (!is_ordered && !at_end_) fail(Verdict::data_race, "a read of a variable");
        return value;
    }
    void write_variable(std::size_t variable, std::uint64_t value) {
        if (!memory_.write_plain(running_, variable, value)) {
            fail(Verdict::data_race, "a write of a variable");
        }
    }
    void require(bool condition, const char* message) {
        if (!condition) fail(Verdict::assertion, message);
    }
    Memory& memory() { return memory_; }

    static Explorer& current() { return *current_; }

private:
    struct Choice {
        std::size_t taken, count;
    };

    void run_once() {
        memory_.clear();
        program_ = {};
        trace_.clear();
        position_ = steps_ = 0;
        preemptions_ = 0;
        ended_ = at_end_ = false;
        make_(program_);
        for (std::size_t i = 0; i < program_.threads.size(); ++i) begin(i);
        last_ = program_.threads.size();
        while (!ended_) step();
    }

    // Up to its first operation.
    void begin(std::size_t index) {
        Thread& thread = threads_.at(index);
        thread.history = 0;
        thread.parked_on.reset();
        thread.looks = thread.spins = false;
        thread.fiber.start(&program_.threads[index]);
        running_ = index;
        thread.fiber.resume();
    }

    void step() {
        std::vector<std::size_t>& able = able_;
        able.clear();
        bool all_done = true;
        for (std::size_t i = 0; i < program_.threads.size(); ++i) {
            all_done = all_done && threads_[i].fiber.is_done();
            if (can_run(i)) able.push_back(i);
        }
        if (all_done) return end();
        if (able.empty()) return fail_here(Verdict::deadlock, "threads wait that nobody wakes");
        if (position_ == choices_.size() && !is_new_state()) {
            ended_ = true;
            return;
        }
        if (++steps_ > options_.max_steps) return fail_here(Verdict::too_long, "");
        // Who ran last first, so that runs with few changes come first.
        std::size_t last = 0;
        for (std::size_t i = 0; i < able.size(); ++i) {
            if (able[i] == last_) last = i;
        }
        const bool goes_on = last < able.size() && able[last] == last_;
        std::swap(able[0], able[last]);
        const bool may_preempt =
            !goes_on || options_.max_preemptions < 0 || preemptions_ < options_.max_preemptions;
        const std::size_t taken = may_preempt ? choose(able.size()) : 0;
        preemptions_ += goes_on && taken != 0;
        last_ = running_ = able[taken];
        threads_[running_].fiber.resume();
    }

    bool can_run(std::size_t index) const {
        const Thread& thread = threads_[index];
        if (thread.fiber.is_done() || thread.parked_on) return false;
        if (!thread.spins) return true;
        for (const std::size_t location : thread.looked_at) {
            if (!memory_.sees_latest(index, location)) return true;
        }
        return false;
    }

    void end() {
        at_end_ = true;
        ended_ = true;
        if (program_.end) result_.outcomes.insert(program_.end());
    }

    bool is_new_state() {
        unfinished_.clear();
        for (std::size_t i = 0; i < program_.threads.size(); ++i) {
            if (!threads_[i].fiber.is_done()) unfinished_.push_back(i);
        }
        std::uint64_t hash = memory_.digest(unfinished_);
        for (std::size_t i = 0; i < program_.threads.size(); ++i) {
            const Thread& thread = threads_[i];
            hash = mix(hash, thread.history);
            hash = mix(hash, (thread.parked_on ? 2U : 0U) + (thread.spins ? 1U : 0U));
            if (!thread.spins) continue;
            for (const std::size_t location : thread.looked_at) hash = mix(hash, location);
        }
        if (options_.max_preemptions >= 0) {
            hash = mix(hash, static_cast<std::uint64_t>(preemptions_) << 8 | last_);
        }
        if (visited_.size() >= options_.max_states) {
            fail_here(Verdict::too_many, "");
            return false;
        }
        return visited_.insert(hash).second || !options_.merges_states;
    }

    // On a fiber: until the scheduler picks it.
    void take_turn() {
        if (!at_end_) threads_[running_].fiber.pause();
    }
    [[noreturn]] void drop_run() {
        ended_ = true;
        for (;;) threads_[running_].fiber.pause();
    }
    void fail(Verdict verdict, const char* message) {
        fail_here(verdict, message);
        if (!at_end_) drop_run();
    }
    void fail_here(Verdict verdict, const char* message) {
        if (result_.verdict == Verdict::passed) {
            result_.verdict = verdict;
            result_.message = message;
            for (const Event& event : trace_) result_.trace += text_of(event);
        }
        ended_ = true;
    }

    std::size_t choose(std::size_t count) {
        if (count <= 1) return 0;
        if (position_ == choices_.size()) choices_.push_back({0, count});
        return choices_[position_++].taken;
    }
    const Memory::Choose& chooser() const { return chooser_; }
    // The next run in the depth-first order, or false.
    bool next_run() {
        while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().count) {
            choices_.pop_back();
        }
        if (choices_.empty()) return false;
        ++choices_.back().taken;
        return true;
    }

    std::uint64_t done(std::uint64_t value, const char* name, std::size_t location,
                       std::memory_order order) {
        if (at_end_) return value;
        std::uint64_t& history = threads_[running_].history;
        history = mix(history, value + 1);
        trace_.push_back({running_, name, location, value, order});
        return value;
    }
    void done(const char* name, std::memory_order order) {
        std::uint64_t& history = threads_[running_].history;
        history = mix(history, 1);
        trace_.push_back({running_, name, std::nullopt, 0, order});
    }

    const std::function<void(Program&)>& make_;
    Options options_;
    Explorer* outer_;
    Result result_;
    Memory memory_;
    Program program_;
    std::array<Thread, max_threads> threads_;
    std::vector<Choice> choices_;  // of this run; the next one takes the same up to the last
    std::size_t position_ = 0;     // in them
    std::unordered_set<std::uint64_t> visited_;  // digests: a clash, one in 10^6 searches, hides
    std::vector<Event> trace_;
    std::vector<std::size_t> able_, unfinished_;
    const Memory::Choose chooser_ = [this](std::size_t count) { return choose(count); };
    std::size_t running_ = 0, last_ = 0, steps_ = 0;
    int preemptions_ = 0;
    bool ended_ = false;
    bool at_end_ = false;
    static Explorer* current_;
};

Explorer* Explorer::current_ = nullptr;

}  // namespace

Result explore(const std::function<void(Program&)>& make, const Options& options) {
    return Explorer(make, options).explore();
}

std::ostream& operator<<(std::ostream& stream, const Result& result) {
    stream << name_of(result.verdict) << " after " << result.runs << " runs, " << result.states
           << " states: " << result.message << "\n"
           << result.trace;
    for (const std::string& outcome : result.outcomes) stream << "outcome " << outcome << "\n";
    return stream;
}

void require(bool condition, const char* message) {
    Explorer::current().require(condition, message);
}
void spin_until(const std::function<bool()>& ready) { Explorer::current().spin_until(ready); }
void fence(std::memory_order order) { Explorer::current().fence(order); }
void light_fence() { Explorer::current().light_fence(); }
void heavy_fence() { Explorer::current().heavy_fence(); }

namespace detail {

std::size_t make_atomic(std::uint64_t value) {
    return Explorer::current().memory().add_location(value);
}
std::uint64_t load(std::size_t location, std::memory_order order) {
    return Explorer::current().load(location, order);
}
void store(std::size_t location, std::uint64_t value, std::memory_order order) {
    Explorer::current().store(location, value, order);
}
std::uint64_t read_modify_write(std::size_t location, const Memory::Update& update,
                                Memory::Orders orders, const char* name) {
    return Explorer::current().read_modify_write(location, update, orders, name);
}
void park(std::size_t location, std::uint64_t expected) {
    Explorer::current().park(location, expected);
}
void wake_all(std::size_t location) { Explorer::current().wake_all(location); }
std::size_t make_variable(std::uint64_t value) {
    return Explorer::current().memory().add_plain(value);
}
std::uint64_t read_variable(std::size_t variable) {
    return Explorer::current().read_variable(variable);
}
void write_variable(std::size_t variable, std::uint64_t value) {
    Explorer::current().write_variable(variable, value);
}

}  // namespace detail
}  // namespace explorer
