// A model checker for small concurrent programs: runs a program in every interleaving of its
// threads and with every value that the C++20 memory model lets each load return (memory.hpp says
// where it does not), and reports the first run that goes wrong.
//
//     const Result result = explore([](Program& program) {
//         struct Shared { Atomic<int> flag{0}; Variable<int> data{0}; };
//         auto shared = std::make_shared<Shared>();
//         program.thread([shared] { shared->data = 42; shared->flag.store(1, release); });
//         program.thread([shared] { if (shared->flag.load(acquire) == 1) require(shared->data ==
//         42); });
//     });
//     EXPECT_EQ(result.verdict, Verdict::passed) << result;
//
// The program is made anew for each run and run again from its beginning, so it must be
// deterministic but for what it reads from Atomics, and keep all that threads share in Atomics and
// Variables. Its threads are fibers of the calling thread, which a run that ends early just leaves:
// nothing on their stacks may own anything.
#pragma once

#include "explorer/memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <set>
#include <string>
#include <type_traits>

namespace explorer {

enum class Verdict {
    passed,
    assertion,  // require(false)
    deadlock,   // threads wait, and none is left to wake them: a lost wake-up
    data_race,
    too_long,  // a run of more than max_steps
    too_many   // more than max_states: the search is not complete
};

struct Options {
    std::size_t max_steps = 400;         // operations of one run
    std::size_t max_states = 4'000'000;  // between two operations
    // Runs in which a thread that could go on is left for another more often are left out. -1:
    // none.
    int max_preemptions = -1;
    // Whether a state that another run has reached ends the run: changes nothing but the time.
    bool merges_states = true;
};

struct Result {
    Verdict verdict = Verdict::passed;
    std::string message;
    std::string trace;  // the operations of the run that went wrong, one a line
    std::set<std::string> outcomes;
    std::size_t runs = 0;
    std::size_t states = 0;
};
std::ostream& operator<<(std::ostream& stream, const Result& result);

// What one run is made of.
class Program {
public:
    void thread(std::function<void()> body) { threads.push_back(std::move(body)); }
    // After all threads, with what they left: a text for Result::outcomes, and more requirements.
    void at_end(std::function<std::string()> body) { end = std::move(body); }

    std::vector<std::function<void()>> threads;
    std::function<std::string()> end;
};

Result explore(const std::function<void(Program&)>& make, const Options& options = {});

// In a thread of the program, or its end.
void require(bool condition, const char* message = "a requirement");
// Loops that look until another thread has stored something: instead of looking for ever, the
// thread goes on when there is something new to see. `ready` must change nothing.
void spin_until(const std::function<bool()>& ready);
void fence(std::memory_order order);
void light_fence();
void heavy_fence();

namespace detail {

std::size_t make_atomic(std::uint64_t value);
std::uint64_t load(std::size_t location, std::memory_order order);
void store(std::size_t location, std::uint64_t value, std::memory_order order);
std::uint64_t read_modify_write(std::size_t location, const Memory::Update& update,
                                Memory::Orders orders, const char* name);
void park(std::size_t location, std::uint64_t expected);
void wake_all(std::size_t location);
std::size_t make_variable(std::uint64_t value);
std::uint64_t read_variable(std::size_t variable);
void write_variable(std::size_t variable, std::uint64_t value);

constexpr std::memory_order failure_order(std::memory_order success) {
    if (success == std::memory_order_acq_rel) return std::memory_order_acquire;
    if (success == std::memory_order_release) return std::memory_order_relaxed;
    return success;
}

}  // namespace detail

// As std::atomic. park and wake_all are the futex calls; compare_exchange does not fail spuriously.
template <class T>
class Atomic {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    using Order = std::memory_order;
    static constexpr Order seq_cst = std::memory_order_seq_cst;

public:
    Atomic(T value = {}) : location_(detail::make_atomic(raw(value))) {}
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(Order order = seq_cst) const { return typed(detail::load(location_, order)); }
    void store(T value, Order order = seq_cst) { detail::store(location_, raw(value), order); }
    T exchange(T value, Order order = seq_cst) {
        return update(order, "exchange", [&](T) { return value; });
    }
    T fetch_add(T by, Order order = seq_cst) {
        return update(order, "fetch_add", [&](T value) { return static_cast<T>(value + by); });
    }
    T fetch_sub(T by, Order order = seq_cst) {
        return update(order, "fetch_sub", [&](T value) { return static_cast<T>(value - by); });
    }
    bool compare_exchange_strong(T& expected, T desired, Order success, Order failure) {
        const T wanted = expected;
        const auto swap = [&](std::uint64_t& value) {
            if (typed(value) != wanted) return false;
            value = raw(desired);
            return true;
        };
        expected = typed(detail::read_modify_write(location_, swap, {success, failure}, "cas"));
        return expected == wanted;
    }
    bool compare_exchange_strong(T& expected, T desired, Order order = seq_cst) {
        return compare_exchange_strong(expected, desired, order, detail::failure_order(order));
    }
    bool compare_exchange_weak(T& expected, T desired, Order order = seq_cst) {
        return compare_exchange_strong(expected, desired, order);
    }
    // FUTEX_WAIT without a timeout: blocks if the value is `expected`, until wake_all.
    void park(T expected) const { detail::park(location_, raw(expected)); }
    void wake_all() { detail::wake_all(location_); }

private:
    static std::uint64_t raw(T value) { return static_cast<std::uint64_t>(value); }
    static T typed(std::uint64_t value) { return static_cast<T>(value); }
    template <class F>
    T update(Order order, const char* name, const F& function) {
        const auto apply = [&](std::uint64_t& value) {
            value = raw(function(typed(value)));
            return true;
        };
        return typed(detail::read_modify_write(location_, apply,
                                               {order, detail::failure_order(order)}, name));
    }
    std::size_t location_;
};

// A variable that is no atomic: accesses that are not ordered are a data race.
template <class T>
class Variable {
public:
    Variable(T value = {}) : variable_(detail::make_variable(static_cast<std::uint64_t>(value))) {}
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    operator T() const { return static_cast<T>(detail::read_variable(variable_)); }
    Variable& operator=(T value) {
        detail::write_variable(variable_, static_cast<std::uint64_t>(value));
        return *this;
    }

private:
    std::size_t variable_;
};

}  // namespace explorer
