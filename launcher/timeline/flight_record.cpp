#include "launcher/timeline/flight_record.hpp"

#include <ddp/version.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

namespace ddp::launcher {
namespace {

using contract::Collective;
using contract::GroupRecord;
using contract::OperationRecord;
using contract::RankRecord;
using nlohmann::json;

constexpr const char* format_version = "2.10";

// What Python's pickle makes of the same value. Texts are ASCII.
class PickleText {
public:
    static std::string of(const json& value) {
        PickleText text;
        text.text_ = "\x80\x02";  // PROTO
        text.put(value);
        return text.text_ + ".";  // STOP
    }

private:
    void put(const json& value);
    void put_integer(std::uint64_t bits, bool is_signed);
    void put_text(const std::string& text);
    template <class Number>
    void put_bytes(const Number& number) {  // little-endian, as the machine
        text_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }

    std::string text_;
};

void PickleText::put(const json& value) {
    switch (value.type()) {
        case json::value_t::object:
            text_ += "}(";  // EMPTY_DICT, MARK
            for (const auto& [name, item] : value.items()) {
                put_text(name);
                put(item);
            }
            text_ += 'u';  // SETITEMS
            return;
        case json::value_t::array:
            text_ += "](";  // EMPTY_LIST, MARK
            for (const json& item : value) put(item);
            text_ += 'e';  // APPENDS
            return;
        case json::value_t::string:
            return put_text(value.get_ref<const std::string&>());
        case json::value_t::boolean:
            text_ += value.get<bool>() ? '\x88' : '\x89';
            return;
        case json::value_t::number_integer:
            return put_integer(static_cast<std::uint64_t>(value.get<std::int64_t>()), true);
        case json::value_t::number_unsigned:
            return put_integer(value.get<std::uint64_t>(), false);
        default:
            text_ += 'N';  // NONE
    }
}

void PickleText::put_integer(std::uint64_t bits, bool is_signed) {
    text_ += "\x8a\x09";  // LONG1, of two's complement: one byte more has the sign
    put_bytes(bits);
    text_ += is_signed && static_cast<std::int64_t>(bits) < 0 ? '\xff' : '\0';
}

void PickleText::put_text(const std::string& text) {
    text_ += 'X';  // BINUNICODE
    put_bytes(static_cast<std::uint32_t>(text.size()));
    text_ += text;
}

// "Float"
const char* scalar_type(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "Float";
        case DType::float64:
            return "Double";
        case DType::int32:
            return "Int";
        case DType::int64:
            return "Long";
        case DType::uint8:
            return "Byte";
        case DType::float16:
            return "Half";
        case DType::bfloat16:
            return "BFloat16";
        case DType::int8:
            return "Char";
        case DType::int16:
            return "Short";
        case DType::boolean:
            return "Bool";
    }
    return "";
}

// As NCCL's backend names the call of c10d, and the elements of what goes in and comes out.
struct Shown {
    const char* name;
    std::uint64_t in;
    std::uint64_t out;
};
Shown shown(const contract::CallSignature& call, int ranks) {
    const std::uint64_t part = call.elements;
    const std::uint64_t all = part * static_cast<std::uint64_t>(ranks);
    switch (call.kind) {
        case Collective::all_reduce:
            return {"nccl:all_reduce", part, part};
        case Collective::broadcast:
            return {"nccl:broadcast", part, part};
        case Collective::all_gather:
            // Uneven: each rank's part is its own business.
            if (call.uneven) return {"nccl:all_gather_v", part, part};
            return {"nccl:_all_gather_base", part, all};
        case Collective::reduce_scatter:
            if (call.uneven) return {"nccl:reduce_scatter_v", part, part};
            return {"nccl:_reduce_scatter_base", all, part};
        case Collective::barrier:
            return {"nccl:barrier", 1, 1};
        case Collective::reduce:
            return {"nccl:reduce", part, part};
        case Collective::gather:
            return {"nccl:gather", part, all};
        case Collective::scatter:
            return {"nccl:scatter", all, part};
        case Collective::all_to_all:
            return {"nccl:all_to_all", all, all};
        case Collective::allocate:
        case Collective::adopt:
            return {"nccl:new_window", part, part};
    }
    return {"nccl:barrier", 1, 1};
}

struct KnownGroup {
    std::set<int> ranks;
    int size = 0;  // as any of the ranks says; of which not all are given
};
using KnownGroups = std::map<std::uint32_t, KnownGroup>;

KnownGroups known_groups(std::span<const RecordedRank> ranks, int world_size) {
    KnownGroups all;
    for (const RecordedRank& one : ranks) {
        for (const OperationRecord& operation : one.record.operations) {
            all[operation.group].ranks.insert(one.rank);
        }
        for (const GroupRecord& group : one.record.groups) {
            KnownGroup& known = all[group.id];
            known.ranks.insert(one.rank);
            known.size = group.size;
            if (group.size != world_size) continue;
            for (int rank = 0; rank < world_size; ++rank) known.ranks.insert(rank);
        }
    }
    return all;
}

// For people: the job's own groups have no names.
const char* description(std::size_t ranks, int world_size) {
    return ranks == static_cast<std::size_t>(world_size) ? "all_ranks" : "undefined";
}

class RankFile {
public:
    RankFile(const RecordedRank& rank, const KnownGroups& groups, const FlightFacts& facts)
        : rank_(rank), groups_(groups), facts_(facts) {}

    json whole() const {
        return {{"version", format_version}, {"comm_lib_version", std::string("ddp ") + version()},
                {"pg_config", groups()},     {"pg_status", progress()},
                {"entries", entries()},      {"rank", rank_.rank},
                {"pid", rank_.record.pid},   {"step", rank_.record.step}};
    }

private:
    const std::set<int>& ranks_of(std::uint32_t group) const { return groups_.at(group).ranks; }
    std::int64_t nanoseconds(OperationRecord::Time time) const {
        return std::chrono::nanoseconds(time.time_since_epoch() + facts_.to_wall_clock).count();
    }
    const char* description_of(std::uint32_t group) const {
        return description(ranks_of(group).size(), facts_.world_size);
    }

    json groups() const {
        json all = json::object();
        for (const auto& [id, group] : groups_) {
            if (!group.ranks.contains(rank_.rank)) continue;
            all[std::to_string(id)] = {{"name", std::to_string(id)},
                                       {"desc", description_of(id)},
                                       {"ranks", json(group.ranks).dump()}};
        }
        return all;
    }

    json progress() const {
        json all = json::object();
        for (const GroupRecord& group : rank_.record.groups) {
            all[std::to_string(group.id)] = {{"last_enqueued_collective", group.started},
                                             {"last_started_collective", group.started},
                                             {"last_completed_collective", group.ended}};
        }
        return all;
    }

    json entry(const OperationRecord& operation) const {
        const GroupRecord* const group = rank_.record.find_group(operation.group);
        const Shown call = shown(operation.call, std::max(1, groups_.at(operation.group).size));
        const json dtypes = {scalar_type(operation.call.dtype)};
        const bool is_over =
            operation.ended || (group != nullptr && operation.sequence <= group->ended);
        const bool is_queued =
            group != nullptr && group->on_gpu && operation.sequence > group->ended + 1;
        const std::string id = std::to_string(operation.group);
        return {
            {"record_id", operation.serial},
            {"pg_id", operation.group},
            {"process_group", {id, description_of(operation.group)}},
            {"collective_seq_id", operation.sequence},
            {"p2p_seq_id", 0},
            {"op_id", operation.sequence},
            {"is_p2p", false},
            {"profiling_name", call.name},
            {"input_sizes", json::array({json::array({call.in})})},
            {"input_dtypes", dtypes},
            {"output_sizes", json::array({json::array({call.out})})},
            {"output_dtypes", dtypes},
            {"time_created_ns", nanoseconds(operation.started)},
            {"time_discovered_started_ns",
             is_queued ? json() : json(nanoseconds(operation.started))},
            {"time_discovered_completed_ns",
             operation.ended ? json(nanoseconds(*operation.ended)) : json()},
            {"state", is_over     ? "completed"
                      : is_queued ? "scheduled"
                                  : "started"},
            {"retired", is_over || (group != nullptr && group->end != contract::GroupEnd::none)},
            {"frames", json::array({{{"name", contract::describe(operation.call)},
                                     {"filename", operation.file},
                                     {"line", operation.line}}})}};
    }

    json entries() const {
        json all = json::array();
        for (const OperationRecord& operation : rank_.record.operations) {
            all.push_back(entry(operation));
        }
        return all;
    }

    const RecordedRank& rank_;
    const KnownGroups& groups_;
    const FlightFacts& facts_;
};

}  // namespace

std::vector<std::string> flight_records(std::span<const RecordedRank> ranks,
                                        const FlightFacts& facts) {
    const KnownGroups groups = known_groups(ranks, facts.world_size);
    std::vector<std::string> files;
    files.reserve(ranks.size());
    for (const RecordedRank& rank : ranks) {
        files.push_back(PickleText::of(RankFile(rank, groups, facts).whole()));
    }
    return files;
}

}  // namespace ddp::launcher
