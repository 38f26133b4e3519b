#include "support/collective_model.hpp"

#include "backends/reduce_model.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace ddp::testing {
namespace {

using backends::Call;
using backends::Collective;
using reduce_test::is_half;
using reduce_test::with_type;
using reduce_test::Work;

constexpr std::size_t guard_bytes = 64;
constexpr std::byte guard{0xa5};
constexpr std::size_t alignment = 64;

bool reduces(Collective kind) {
    return kind == Collective::all_reduce || kind == Collective::reduce ||
           kind == Collective::reduce_scatter;
}

std::size_t index_of(int number) { return static_cast<std::size_t>(number); }

std::uint32_t mixed(std::uint64_t value) {
    value *= 0x9e3779b97f4a7c15;
    return static_cast<std::uint32_t>((value ^ value >> 29) >> 32);
}

// Small enough that no result is rounded, whatever the order.
std::int64_t value_at(const CollectivePlan& plan, std::size_t rank, std::size_t index) {
    const std::uint32_t any = mixed(index * 64 + rank + (std::uint64_t{plan.values} << 24));
    const std::int64_t factors[] = {1, 2, -1, 1};
    if (plan.op == ReduceOp::product && reduces(plan.kind)) return factors[any % 4];
    if (plan.op == ReduceOp::premul_sum) return 1 + any % 4;  // no zero, which would have a sign
    return static_cast<std::int64_t>(any % 16) - 8;
}

// Another one in each call, on each rank.
double factor_of(const CollectivePlan& plan, std::size_t rank) {
    const double factors[] = {1, 2, -2, 1};
    return factors[mixed(plan.values + rank) % 4];
}

template <class T>
T element_of(std::int64_t value) {
    if constexpr (std::is_same_v<T, bool>) {
        return (value & 1) != 0;
    } else {
        return static_cast<T>(static_cast<Work<T>>(value));
    }
}

template <class T>
std::int64_t number_of(T element) {
    return static_cast<std::int64_t>(static_cast<Work<T>>(element));
}

std::int64_t combine(ReduceOp::Kind op, std::int64_t a, std::int64_t b) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
        case ReduceOp::premul_sum:
            return static_cast<std::int64_t>(x + y);
        case ReduceOp::product:
            return static_cast<std::int64_t>(x * y);
        case ReduceOp::min:
            return std::min(a, b);
        case ReduceOp::max:
            return std::max(a, b);
        case ReduceOp::bit_and:
            return a & b;
        case ReduceOp::bit_or:
            return a | b;
        case ReduceOp::bit_xor:
            return a ^ b;
    }
    return 0;
}

template <class T>
T reduced(const CollectivePlan& plan, std::size_t index) {
    const auto number = [&](std::size_t rank) {
        const std::int64_t value = number_of(element_of<T>(value_at(plan, rank, index)));
        const bool scaled = plan.op == ReduceOp::premul_sum;
        return scaled ? value * static_cast<std::int64_t>(factor_of(plan, rank)) : value;
    };
    std::int64_t result = number(0);
    for (std::size_t rank = 1; rank < index_of(plan.ranks); ++rank) {
        result = combine(plan.op, result, number(rank));
    }
    if constexpr (std::is_same_v<T, bool>) return result != 0;
    if (plan.op != ReduceOp::avg) return static_cast<T>(static_cast<Work<T>>(result));
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<T>(result) / static_cast<std::int64_t>(plan.ranks));
    } else {
        return static_cast<T>(static_cast<Work<T>>(result) / static_cast<Work<T>>(plan.ranks));
    }
}

std::size_t sum(const std::size_t* first, std::size_t count) {
    return std::accumulate(first, first + count, std::size_t{0});
}

// What `rank` gives, and gets, in elements.
std::size_t input_elements(const CollectivePlan& plan, std::size_t rank) {
    const std::size_t ranks = index_of(plan.ranks);
    const bool is_root = rank == index_of(plan.root);
    switch (plan.kind) {
        case Collective::all_gather:
            return plan.counts.empty() ? plan.elements : plan.counts[rank];
        case Collective::reduce_scatter:
            return ranks * plan.elements;
        case Collective::scatter:
            return is_root ? ranks * plan.elements : 0;
        case Collective::all_to_all:
            return plan.counts.empty() ? ranks * plan.elements
                                       : sum(&plan.counts[rank * ranks], ranks);
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::gather:
            return plan.elements;
        case Collective::broadcast:
            return is_root ? plan.elements : 0;
        case Collective::barrier:
        case Collective::allocate:
        case Collective::adopt:
            break;
    }
    return 0;
}

std::size_t count_between(const CollectivePlan& plan, std::size_t from, std::size_t to) {
    return plan.counts.empty() ? plan.elements : plan.counts[from * index_of(plan.ranks) + to];
}

std::size_t output_elements(const CollectivePlan& plan, std::size_t rank) {
    const std::size_t ranks = index_of(plan.ranks);
    const bool is_root = rank == index_of(plan.root);
    std::size_t received = 0;
    switch (plan.kind) {
        case Collective::all_gather:
            return plan.counts.empty() ? ranks * plan.elements : sum(plan.counts.data(), ranks);
        case Collective::gather:
            return is_root ? ranks * plan.elements : 0;
        case Collective::reduce:
            return is_root ? plan.elements : 0;
        case Collective::all_to_all:
            for (std::size_t from = 0; from < ranks; ++from) {
                received += count_between(plan, from, rank);
            }
            return received;
        case Collective::all_reduce:
        case Collective::reduce_scatter:
        case Collective::scatter:
        case Collective::broadcast:
            return plan.elements;
        case Collective::barrier:
        case Collective::allocate:
        case Collective::adopt:
            break;
    }
    return 0;
}

// Where in the larger buffer the smaller one lies when a collective runs in place, in elements.
std::size_t own_part(const CollectivePlan& plan, std::size_t rank) {
    const bool gathers = plan.kind == Collective::all_gather || plan.kind == Collective::gather;
    const bool scatters =
        plan.kind == Collective::scatter || plan.kind == Collective::reduce_scatter;
    if (!gathers && !scatters) return 0;
    return plan.counts.empty() ? rank * plan.elements : sum(plan.counts.data(), rank);
}

template <class T>
void append(std::vector<T>& result, const CollectivePlan& plan, std::size_t rank, std::size_t first,
            std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        result.push_back(element_of<T>(value_at(plan, rank, first + i)));
    }
}

template <class T>
std::vector<T> output_of(const CollectivePlan& plan, std::size_t rank) {
    const std::size_t ranks = index_of(plan.ranks);
    const std::size_t count = output_elements(plan, rank);
    std::vector<T> result;
    if (reduces(plan.kind)) {
        const std::size_t first =
            plan.kind == Collective::reduce_scatter ? rank * plan.elements : 0;
        for (std::size_t i = 0; i < count; ++i) result.push_back(reduced<T>(plan, first + i));
        return result;
    }
    if (plan.kind == Collective::broadcast) append(result, plan, index_of(plan.root), 0, count);
    if (plan.kind == Collective::scatter) {
        append(result, plan, index_of(plan.root), rank * plan.elements, count);
    }
    const bool gathers = plan.kind == Collective::all_gather || plan.kind == Collective::gather;
    for (std::size_t from = 0; from < ranks && gathers && count > 0; ++from) {
        append(result, plan, from, 0, input_elements(plan, from));
    }
    for (std::size_t from = 0; from < ranks && plan.kind == Collective::all_to_all; ++from) {
        std::size_t first = 0;
        for (std::size_t to = 0; to < rank; ++to) first += count_between(plan, from, to);
        append(result, plan, from, first, count_between(plan, from, rank));
    }
    return result;
}

// memcpy, as std::vector<bool> has no data().
template <class T>
void put(const std::vector<T>& elements, std::byte* to) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const T element = elements[i];
        std::memcpy(to + i * sizeof(T), static_cast<const void*>(&element), sizeof(T));
    }
}

std::size_t random_count(std::mt19937& random, std::size_t most) {
    switch (random() % 8) {
        case 0:
            return random() % 3;
        case 1:
        case 2:
        case 3:
            return random() % 40;
        case 4:
        case 5:
            return random() % std::min<std::size_t>(most, 600);
        default:
            return random() % most;
    }
}

ReduceOp::Kind random_op(std::mt19937& random, DType dtype) {
    for (;;) {
        const auto op = static_cast<ReduceOp::Kind>(random() % (ReduceOp::premul_sum + 1));
        if (is_defined(op, dtype)) return op;
    }
}

}  // namespace

std::string describe(const CollectivePlan& plan) {
    const Call call{plan.kind, plan.dtype, plan.op, plan.root, plan.elements};
    std::string text = backends::describe(call) + (plan.in_place ? " in place" : "");
    if (!plan.counts.empty()) text += " uneven";
    for (const bool input : {true, false}) {
        text += input ? ", inputs" : ", outputs";
        for (const auto& place : input ? plan.inputs : plan.outputs) {
            text += (place.shared ? " shared+" : " own+") + std::to_string(place.misalignment);
        }
    }
    return text;
}

std::size_t largest_buffer(int ranks, std::size_t max_elements) {
    return index_of(ranks) * max_elements * sizeof(double) + 2 * guard_bytes + 2 * alignment;
}

CollectivePlan random_collective(std::mt19937& random, int ranks, std::size_t max_elements) {
    CollectivePlan plan;
    plan.kind =
        static_cast<Collective>(random() % index_of(static_cast<int>(Collective::allocate)));
    plan.dtype = static_cast<DType>(random() % (static_cast<unsigned>(DType::boolean) + 1));
    plan.op = reduces(plan.kind) ? random_op(random, plan.dtype) : ReduceOp::sum;
    plan.ranks = ranks;
    plan.root = static_cast<int>(random() % index_of(ranks));
    plan.elements = random_count(random, max_elements);
    plan.in_place = random() % 2 == 0 && plan.kind != Collective::all_to_all;
    plan.values = static_cast<std::uint32_t>(random());
    const bool can_be_uneven =
        plan.kind == Collective::all_gather || plan.kind == Collective::all_to_all;
    if (can_be_uneven && random() % 2 == 0) {
        plan.elements = 0;
        plan.counts.resize(index_of(ranks) *
                           (plan.kind == Collective::all_to_all ? index_of(ranks) : 1));
        for (auto& count : plan.counts)
            count = random() % 3 == 0 ? 0 : random_count(random, max_elements);
    }
    const unsigned memory = random() % 4;  // of all: ordinary, ordinary, shared; or mixed
    const bool aligned = random() % 2 == 0;
    for (auto* const places : {&plan.inputs, &plan.outputs}) {
        for (int rank = 0; rank < ranks; ++rank) {
            const bool shared = memory == 2 || (memory == 3 && random() % 2 == 0);
            places->push_back({shared, aligned ? 0 : random() % alignment});
        }
    }
    return plan;
}

PlannedCollective::PlannedCollective(const CollectivePlan& plan, int rank, const Arena& arena)
    : plan_(plan), rank_(index_of(rank)) {
    const std::size_t given = input_elements(plan_, rank_);
    const std::size_t taken = output_elements(plan_, rank_);
    const bool both = given > 0 && taken > 0 && plan_.in_place;
    const std::size_t larger = std::max(given, taken);
    input_ = place(plan_.inputs[rank_], arena, 0, both ? larger : given);
    output_ = both ? input_ : place(plan_.outputs[rank_], arena, 1, taken);
    if (both) {
        Buffer& smaller = given < taken ? input_ : output_;
        if (given != taken) smaller.first += own_part(plan_, rank_) * size_of(plan_.dtype);
        input_.elements = given;
        output_.elements = taken;
    }
    fill_input();
    expect_output();
}

PlannedCollective::Buffer PlannedCollective::place(const CollectivePlan::Place& where,
                                                   const Arena& arena, std::size_t half,
                                                   std::size_t elements) const {
    const std::span<std::byte> memory = where.shared ? arena.shared : arena.ordinary;
    const std::size_t offset = half * (memory.size() / 2 / alignment * alignment);
    Buffer buffer;
    buffer.begin = memory.data() + offset;
    buffer.first = guard_bytes + where.misalignment;
    buffer.elements = elements;
    buffer.expected.assign(buffer.first + elements * size_of(plan_.dtype) + guard_bytes, guard);
    std::memcpy(buffer.begin, buffer.expected.data(), buffer.expected.size());
    return buffer;
}

TensorView PlannedCollective::view(const Buffer& buffer) const {
    return {buffer.data(), Shape{static_cast<std::int64_t>(buffer.elements)}, plan_.dtype};
}

void PlannedCollective::fill_input() {
    with_type(plan_.dtype, [&](auto zero) {
        std::vector<decltype(zero)> values;
        append(values, plan_, rank_, 0, input_.elements);
        put(values, input_.expected.data() + input_.first);
        std::memcpy(input_.begin, input_.expected.data(), input_.expected.size());
    });
}

// In place the two buffers are one, with the input in it already.
void PlannedCollective::expect_output() {
    const bool one = input_.begin == output_.begin;
    if (one) output_.expected = input_.expected;
    with_type(plan_.dtype, [&](auto zero) {
        put(output_of<decltype(zero)>(plan_, rank_), output_.expected.data() + output_.first);
    });
    if (one) input_.expected = output_.expected;
}

backends::Call PlannedCollective::call() const {
    Call call{plan_.kind, plan_.dtype, plan_.op, plan_.root, plan_.elements};
    if (plan_.op == ReduceOp::premul_sum)
        call.op = ReduceOp::make_premul_sum(factor_of(plan_, rank_));
    const bool is_root = rank_ == index_of(plan_.root);
    const bool one_input = plan_.kind == Collective::scatter;
    const bool one_output = plan_.kind == Collective::reduce || plan_.kind == Collective::gather;
    if (is_root || !one_input) call.input = input_.data();
    if (is_root || !one_output) call.output = output_.data();
    if (plan_.kind == Collective::broadcast && !is_root) call.input = call.output;
    if (plan_.counts.empty()) return call;
    backends::Parts parts;
    if (plan_.kind == Collective::all_gather) {
        parts.send = plan_.counts;
    } else {
        for (std::size_t peer = 0; peer < index_of(plan_.ranks); ++peer) {
            parts.send.push_back(count_between(plan_, rank_, peer));
            parts.receive.push_back(count_between(plan_, peer, rank_));
        }
    }
    call.parts = std::make_shared<backends::Parts>(std::move(parts));
    return call;
}

std::string PlannedCollective::wrong() const {
    for (const Buffer* const buffer : {&input_, &output_}) {
        const auto& expected = buffer->expected;
        if (std::memcmp(buffer->begin, expected.data(), expected.size()) == 0) continue;
        const auto at = std::mismatch(expected.begin(), expected.end(), buffer->begin).first;
        const auto byte = static_cast<std::size_t>(at - expected.begin());
        return describe(plan_) + ": rank " + std::to_string(rank_) + ": byte " +
               std::to_string(byte) + " of its " + (buffer == &input_ ? "input" : "output") +
               ", whose " + std::to_string(buffer->elements) + " elements begin at " +
               std::to_string(buffer->first);
    }
    return {};
}

}  // namespace ddp::testing
