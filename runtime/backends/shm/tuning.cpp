#include "backends/shm/tuning.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/cpu_features.hpp"

namespace ddp::shm {
namespace {

constexpr std::uint64_t K = 1024;
constexpr std::uint64_t M = 1024 * K;
constexpr std::uint64_t G = 1024 * M;
constexpr std::uint64_t half = 512 * K;
constexpr std::uint64_t any = G;  // as much as a chunk
constexpr int many = 1 << 20;     // ranks

struct Row {
    bool oversubscribed;  // more ranks than cores
    int ranks;            // up to
    Tuning tuning;
};
// The first row that fits. Measured with ddp-bench; see docs/benchmarks.md. The groups stand as in
// Tuning:
//   staged: one phase, chunk, pipelined
//   streaming: gain, outputs
//   coloring: calls, footprint (in the table, of the ranks of one core together), swaps
//   copying: claims outputs, string copies
//   direct: least, most, most in exchanges, most in all_reduce
//   waiting: spins, yields
constexpr Tuning::Streaming no_streaming{0, 0};
constexpr Tuning::Coloring no_coloring{0, any, 0};
constexpr Tuning::Copying claim_outputs{1, 0};
constexpr Row row_of(bool oversubscribed, int ranks, Tuning::Staged staged, Tuning::Direct direct) {
    const Tuning::Waiting waiting{oversubscribed ? 0U : 200U, 1000};
    return {
        oversubscribed, ranks, {staged, no_streaming, no_coloring, claim_outputs, direct, waiting}};
}
constexpr Row table[] = {
    row_of(false, 2, {8 * K, 128 * K, any}, {256 * K, M, M, M}),
    row_of(false, many, {8 * K, 128 * K, any}, {256 * K, M, M, 0}),
    row_of(true, 4, {16 * K, 256 * K, any}, {256 * K, M, M, 0}),
    row_of(true, 16, {16 * K, 256 * K, any}, {128 * K, 4 * M, 4 * M, 0}),
    row_of(true, many, {16 * K, 128 * K, any}, {128 * K, 4 * M, 4 * M, 0}),
};
constexpr Row with_string_copies(bool oversubscribed, int ranks, Tuning::Staged staged,
                                 Tuning::Direct direct, std::uint64_t streaming_gain_ps = 0,
                                 std::uint64_t claims_outputs = 1) {
    Row row = row_of(oversubscribed, ranks, staged, direct);
    row.tuning.streaming = {streaming_gain_ps, 32 * M};
    row.tuning.coloring = {4 * K, 2 * M, oversubscribed ? 0U : 1U};
    row.tuning.copying = {claims_outputs, 2 * K};
    return row;
}
// Of others than AMD with fast short string copies: Intel's since Ice Lake (measured on Emerald
// Rapids).
constexpr Row table_with_string_copies[] = {
    with_string_copies(false, 2, {8 * K, 128 * K, any}, {256 * K, 16 * M, 16 * M, 4 * M}),
    with_string_copies(false, many, {8 * K, 128 * K, any}, {256 * K, M, M, 0}),
    with_string_copies(true, 4, {16 * K, 256 * K, any}, {256 * K, G, M, 0}),
    with_string_copies(true, 16, {16 * K, 256 * K, any}, {128 * K, G, 0, 0}),
    with_string_copies(true, many, {16 * K, 128 * K, any}, {128 * K, G, 0, 0}),
};
// Where cores may have no cache in common (measured on AMD's Zen 4; on Intel's Skylake-SP staging
// past the caches is 2.5 times slower).
constexpr Row without_common_cache(bool oversubscribed, int ranks, Tuning::Staged staged,
                                   Tuning::Direct direct) {
    return with_string_copies(oversubscribed, ranks, staged, direct, 70, 0);
}
constexpr Row table_without_common_cache[] = {
    without_common_cache(false, many, {4 * K, half, any}, {256 * K, 0, 0, 0}),
    without_common_cache(true, 4, {32 * K, half, 256 * K}, {256 * K, 0, 0, 0}),
    without_common_cache(true, 16, {32 * K, half, 256 * K}, {128 * K, G, 0, 0}),
    without_common_cache(true, 64, {16 * K, half, 256 * K}, {128 * K, G, 0, 0}),
    without_common_cache(true, many, {16 * K, 128 * K, any}, {128 * K, G, 0, 0}),
};

constexpr std::uint64_t least_chunk = 4 * K;
constexpr std::uint64_t most_chunk = 64 * M;
constexpr std::uint64_t most_spins = 16 * M;  // half a second
constexpr std::uint64_t most_yield_us = 1'000'000;

[[noreturn]] void refuse(std::string_view what, const std::string& why) {
    throw UsageError("DDP_SHM_TUNING: '" + std::string(what) + "' " + why);
}

std::uint64_t number(std::string_view entry, std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    if (error == std::errc{} && unit.empty()) return value;
    const bool fits = error == std::errc{} && value < (std::uint64_t{1} << 32);
    if (fits && (unit == "K" || unit == "k")) return value * K;
    if (fits && (unit == "M" || unit == "m")) return value * M;
    refuse(entry, "needs a number of bytes, such as 4096, 64K or 1M");
}

struct Field {
    std::string_view name;
    std::uint64_t& (*in)(Tuning&);
};
constexpr Field fields[] = {
    {"one_phase_bytes", [](Tuning& t) -> std::uint64_t& { return t.staged.one_phase_bytes; }},
    {"chunk_bytes", [](Tuning& t) -> std::uint64_t& { return t.staged.chunk_bytes; }},
    {"pipelined_bytes", [](Tuning& t) -> std::uint64_t& { return t.staged.pipelined_bytes; }},
    {"streaming_gain_ps", [](Tuning& t) -> std::uint64_t& { return t.streaming.min_gain_ps; }},
    {"streaming_output_bytes",
     [](Tuning& t) -> std::uint64_t& { return t.streaming.min_output_bytes; }},
    {"rotating_bytes", [](Tuning& t) -> std::uint64_t& { return t.coloring.min_bytes; }},
    {"rotating_room", [](Tuning& t) -> std::uint64_t& { return t.coloring.footprint_bytes; }},
    {"swapped_slots", [](Tuning& t) -> std::uint64_t& { return t.coloring.swaps; }},
    {"claims_outputs", [](Tuning& t) -> std::uint64_t& { return t.copying.claims_outputs; }},
    {"string_bytes", [](Tuning& t) -> std::uint64_t& { return t.copying.string_bytes; }},
    {"direct_bytes_min", [](Tuning& t) -> std::uint64_t& { return t.direct.min_bytes; }},
    {"direct_bytes_max", [](Tuning& t) -> std::uint64_t& { return t.direct.max_bytes; }},
    {"direct_exchange_bytes_max",
     [](Tuning& t) -> std::uint64_t& { return t.direct.max_exchange_bytes; }},
    {"direct_reduction_bytes_max",
     [](Tuning& t) -> std::uint64_t& { return t.direct.max_reduction_bytes; }},
    {"spins", [](Tuning& t) -> std::uint64_t& { return t.waiting.spins; }},
    {"yield_us", [](Tuning& t) -> std::uint64_t& { return t.waiting.yield_us; }},
};

void apply(Tuning& tuning, std::string_view entry) {
    const std::size_t equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    std::uint64_t* field = nullptr;
    std::string names;
    for (const Field& one : fields) {
        if (name == one.name) field = &one.in(tuning);
        names += (names.empty() ? "" : ", ") + std::string(one.name) + "=";
    }
    if (field == nullptr || equals == std::string_view::npos) {
        refuse(entry, "is not one of " + names + " (separated by commas)");
    }
    *field = number(entry, entry.substr(equals + 1));
    if (tuning.staged.chunk_bytes < least_chunk || tuning.staged.chunk_bytes > most_chunk) {
        refuse(entry, "is outside 4K to 64M");
    }
    if (tuning.waiting.spins > most_spins) refuse(entry, "is more than 16M");
    if (tuning.waiting.yield_us > most_yield_us) refuse(entry, "is more than a second");
}

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

const Row* table_of_this_processor() {
    if (base::is_made_by_amd()) return table_without_common_cache;
    return base::has_fast_short_rep_movsb() ? table_with_string_copies : table;
}

// Slots begin on pages, and hold whole cache lines of each rank's share.
std::uint64_t least_slot(int ranks) {
    return std::max(static_cast<std::uint64_t>(ranks) * 64, least_chunk);
}

}  // namespace

const char* find_impossible(const Tuning& tuning, int ranks) {
    const std::uint64_t least = whole_pages(least_slot(ranks));
    const auto is_slot = [&](std::uint64_t bytes) {
        return bytes >= least && bytes <= std::max(most_chunk, least) && bytes % 4096 == 0;
    };
    if (!is_slot(tuning.staged.chunk_bytes)) return "chunk_bytes";
    if (!is_slot(tuning.staged.pipelined_bytes) ||
        tuning.staged.pipelined_bytes > tuning.staged.chunk_bytes) {
        return "pipelined_bytes";
    }
    if (tuning.staged.one_phase_bytes > tuning.staged.chunk_bytes) return "one_phase_bytes";
    if (tuning.waiting.spins > most_spins) return "spins";
    if (tuning.waiting.yield_us > most_yield_us) return "yield_us";
    return nullptr;
}

Tuning make_tuning(int ranks, int cores, std::string_view overrides) {
    const bool oversubscribed = ranks > cores;
    const Row* row = table_of_this_processor();
    while (row->oversubscribed != oversubscribed || row->ranks < ranks) ++row;
    Tuning tuning = row->tuning;
    if (!base::has_fast_short_rep_movsb()) tuning.copying.string_bytes = 0;
    tuning.coloring.footprint_bytes /= static_cast<std::uint64_t>((ranks + cores - 1) / cores);
    while (!overrides.empty()) {
        const std::size_t comma = overrides.find(',');
        apply(tuning, overrides.substr(0, comma));
        overrides.remove_prefix(comma == std::string_view::npos ? overrides.size() : comma + 1);
    }
    const std::uint64_t least = least_slot(ranks);
    tuning.staged.chunk_bytes = whole_pages(std::max(tuning.staged.chunk_bytes, least));
    tuning.staged.pipelined_bytes =
        std::min(tuning.staged.pipelined_bytes, tuning.staged.chunk_bytes);
    tuning.staged.pipelined_bytes = whole_pages(std::max(tuning.staged.pipelined_bytes, least));
    if (tuning.staged.one_phase_bytes > tuning.staged.chunk_bytes)
        tuning.staged.one_phase_bytes = tuning.staged.chunk_bytes;
    return tuning;
}

}  // namespace ddp::shm
