// One table says what follows each opcode; encoding and decoding both walk it. Decoding can stop at
// any byte and go on later, so that a client that sends byte by byte costs no more than one that
// sends at once. Invariant: between two calls the input holds what next() has not looked at, and of
// what it has looked at at most the first bytes of a number.
#include "store/wire.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>

namespace ddp::store {
namespace {

enum class Field { none, key, value, number32, number64, keys, pairs };
using Fields = std::array<Field, 3>;

constexpr std::array<Fields, opcode_count> fields_of{{
    {Field::number32},                         // validate
    {Field::key, Field::value},                // set
    {Field::key, Field::value, Field::value},  // compare_set
    {Field::key},                              // get
    {Field::key, Field::number64},             // add
    {Field::keys},                             // check
    {Field::keys},                             // wait
    {},                                        // get_num_keys
    {Field::key},                              // delete_key
    {Field::key, Field::value},                // append
    {Field::keys},                             // multi_get
    {Field::pairs},                            // multi_set
    {},                                        // cancel_wait
    {Field::number32},                         // ping
    {Field::key, Field::value},                // queue_push
    {Field::key},                              // queue_pop
    {Field::key},                              // queue_len
    {},                                        // list_keys
    {Field::key, Field::number64},             // barrier
    {Field::key},                              // watch_key
    {Field::value},                            // join
}};

constexpr std::array legacy_opcodes{
    Opcode::set,       Opcode::compare_set,  Opcode::get,        Opcode::add,        Opcode::check,
    Opcode::wait,      Opcode::get_num_keys, Opcode::watch_key,  Opcode::delete_key, Opcode::append,
    Opcode::multi_get, Opcode::multi_set,    Opcode::cancel_wait};

constexpr std::size_t last_modern_opcode = static_cast<std::size_t>(Opcode::barrier);
constexpr std::uint8_t join_on_wire = 65;  // far from what PyTorch may add; 64 was ATTEMPT

const Fields& fields(Opcode op) { return fields_of[static_cast<std::size_t>(op)]; }

std::uint8_t wire_opcode(Opcode op, Era era) {
    if (era == Era::modern && op == Opcode::join) return join_on_wire;
    if (era == Era::modern && op != Opcode::watch_key) return static_cast<std::uint8_t>(op);
    for (std::size_t i = 0; era == Era::legacy && i < legacy_opcodes.size(); ++i) {
        if (legacy_opcodes[i] == op) return static_cast<std::uint8_t>(i);
    }
    throw UsageError{"store: operation " + std::to_string(static_cast<int>(op)) +
                     " does not exist in this numbering"};
}

template <class Number>
void append_number(std::string& out, Number number) {
    for (std::size_t i = 0; i < sizeof number; ++i) {
        out.push_back(static_cast<char>((number >> (8 * i)) & 0xFF));
    }
}

template <class Number>
Number read_number(std::string_view bytes) {
    Number number = 0;
    for (std::size_t i = 0; i < sizeof number; ++i) {
        number |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return number;
}

}  // namespace

void append_u8(std::string& out, std::uint8_t number) { append_number(out, number); }
void append_u32(std::string& out, std::uint32_t number) { append_number(out, number); }
void append_u64(std::string& out, std::uint64_t number) { append_number(out, number); }
void append_i64(std::string& out, std::int64_t number) {
    append_number(out, static_cast<std::uint64_t>(number));
}
void append_bytes(std::string& out, std::string_view bytes) {
    append_u64(out, bytes.size());
    out.append(bytes);
}
std::uint32_t read_u32(std::string_view bytes) { return read_number<std::uint32_t>(bytes); }
std::uint64_t read_u64(std::string_view bytes) { return read_number<std::uint64_t>(bytes); }

std::string encode_request(const Request& request, Era era) {
    std::string out;
    append_u8(out, wire_opcode(request.op, era));
    std::size_t values = 0;
    for (const auto field : fields(request.op)) {
        switch (field) {
            case Field::none:
                break;
            case Field::key:
                append_bytes(out, request.keys.at(0));
                break;
            case Field::value:
                append_bytes(out, request.values.at(values++));
                break;
            case Field::number32:
                append_u32(out, static_cast<std::uint32_t>(request.number));
                break;
            case Field::number64:
                append_i64(out, request.number);
                break;
            case Field::keys:
                append_u64(out, request.keys.size());
                for (const auto& key : request.keys) append_bytes(out, key);
                break;
            case Field::pairs:
                append_u64(out, request.keys.size());
                for (const auto& key : request.keys) {
                    append_bytes(out, key);
                    append_bytes(out, request.values.at(values++));
                }
                break;
        }
    }
    return out;
}

std::size_t cost_of(const Request& request) {
    std::size_t cost = 0;
    for (const auto& key : request.keys) cost += key.size() + string_overhead;
    for (const auto& value : request.values) cost += value.size() + string_overhead;
    return cost;
}

void RequestParser::feed(std::string_view bytes) { input_.append(bytes); }

RequestParser::Status RequestParser::next(Request& request) {
    if (!refusal_.empty()) return Status::refused;
    auto status = Status::request;
    if (era_ == Era::undecided) status = identify();
    if (status == Status::request && !begun_) status = start();
    while (status == Status::request && field_ < fields(partial_.op).size() &&
           fields(partial_.op)[field_] != Field::none) {
        status = take_field();
        if (status == Status::request) ++field_;
    }
    if (status == Status::request) {
        request = std::move(partial_);
        partial_ = Request{};
        begun_ = false;
        is_first_ = false;
        granted_ = bytes_without_grant;
    }
    if (status == Status::incomplete || !has_unread()) input_.shrink();
    return status;
}

bool RequestParser::wants_more_later() const {
    if (!begun_ || field_ >= fields(partial_.op).size()) return false;
    const auto field = fields(partial_.op)[field_];
    return field == Field::keys || field == Field::pairs;
}

std::size_t RequestParser::held_bytes() const {
    const auto request = begun_ ? std::max(cost_, granted_memory()) : 0;
    return request + unread_bytes();
}

// Decides the numbering from the first bytes and, in the newer one, consumes VALIDATE.
RequestParser::Status RequestParser::identify() {
    const auto bytes = unread();
    if (bytes.empty()) return Status::incomplete;
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (first == agent_hello) return refuse("an agent, where none are taken");
    if (first >= legacy_opcodes.size()) return refuse("not a client of a store");
    std::string hello(1, '\0');
    append_u32(hello, validate_magic);
    if (!hello.starts_with(bytes.substr(0, hello.size()))) {
        era_ = Era::legacy;
        return Status::request;
    }
    if (bytes.size() < hello.size()) return Status::incomplete;
    era_ = Era::modern;
    input_.consume(hello.size());
    return Status::request;
}

RequestParser::Status RequestParser::start() {
    if (unread().empty()) return Status::incomplete;
    const auto number = static_cast<std::size_t>(static_cast<unsigned char>(unread()[0]));
    if (era_ == Era::legacy) {
        if (number >= legacy_opcodes.size()) return refuse("unknown operation");
        partial_.op = legacy_opcodes[number];
    } else if (number == join_on_wire) {
        partial_.op = Opcode::join;
    } else {
        if (number == 0 || number > last_modern_opcode) return refuse("unknown operation");
        partial_.op = static_cast<Opcode>(number);
    }
    begun_ = true;
    field_ = 0;
    counted_ = false;
    size_ = 1;
    cost_ = 0;
    input_.consume(1);
    return Status::request;
}

RequestParser::Status RequestParser::take_field() {
    const auto take_number = [this](std::size_t bytes) {
        if (unread().size() < bytes) return Status::incomplete;
        partial_.number = bytes == sizeof(std::uint32_t)
                              ? std::int64_t{read_u32(unread())}
                              : static_cast<std::int64_t>(read_u64(unread()));
        input_.consume(bytes);
        return Status::request;
    };
    switch (fields(partial_.op)[field_]) {
        case Field::none:
            return Status::request;
        case Field::key:
            return take_string(partial_.keys, max_key_bytes);
        case Field::value:
            return take_string(partial_.values, max_value_bytes);
        case Field::number32:
            return take_number(sizeof(std::uint32_t));
        case Field::number64:
            return take_number(sizeof(std::uint64_t));
        case Field::keys:
        case Field::pairs:
            return take_list();
    }
    return refuse("unknown operation");
}

RequestParser::Status RequestParser::take_list() {
    const bool is_pairs = fields(partial_.op)[field_] == Field::pairs;
    if (!counted_) {
        if (unread().size() < sizeof(std::uint64_t)) return Status::incomplete;
        const auto count = read_u64(unread());
        if (count > max_keys_per_request) {
            return refuse(std::to_string(count) + " keys where at most " +
                          std::to_string(max_keys_per_request) + " are allowed");
        }
        input_.consume(sizeof(std::uint64_t));
        size_ += sizeof(std::uint64_t);
        items_left_ = count * (is_pairs ? 2 : 1);
        counted_ = true;
    }
    for (; items_left_ > 0; --items_left_) {
        const bool is_value = is_pairs && items_left_ % 2 == 1;
        const auto status = is_value ? take_string(partial_.values, max_value_bytes)
                                     : take_string(partial_.keys, max_key_bytes);
        if (status != Status::request) return status;
    }
    return Status::request;
}

RequestParser::Status RequestParser::take_string(std::vector<std::string>& list,
                                                 std::size_t limit) {
    if (!announced_) {
        if (const auto status = announce(list, limit); status != Status::request) return status;
    }
    auto& text = list.back();
    const auto piece = unread().substr(0, *announced_ - text.size());
    text.append(piece);
    input_.consume(piece.size());
    if (text.size() < *announced_) return Status::incomplete;
    announced_.reset();
    return Status::request;
}

// A string's length: believed only within all limits, and with memory for it.
RequestParser::Status RequestParser::announce(std::vector<std::string>& list, std::size_t limit) {
    if (unread().size() < sizeof(std::uint64_t)) return Status::incomplete;
    const auto length = read_u64(unread());
    if (length > limit) {
        return refuse("a length of " + std::to_string(length) + " where at most " +
                      std::to_string(limit) + " is allowed");
    }
    const auto size = size_ + sizeof(std::uint64_t) + length;
    if (is_first_ && size > max_first_request_bytes) {
        return refuse("a first request of more than " + std::to_string(max_first_request_bytes) +
                      " bytes");
    }
    const auto cost = cost_ + length + string_overhead;
    if (cost > max_request_bytes) {
        return refuse("a request of more than " + std::to_string(max_request_bytes >> 20) + " MiB");
    }
    if (cost > granted_) {
        const bool is_expected_value = partial_.op == Opcode::compare_set && field_ == 1;
        wanted_memory_ = is_expected_value ? cost + max_value_bytes + string_overhead : cost;
        if (wants_more_later()) {  // in steps, not string by string
            constexpr std::size_t step = std::size_t{1} << 20;
            wanted_memory_ = std::min((cost + step - 1) / step * step, max_request_bytes);
        }
        return Status::needs_memory;
    }
    size_ = size;
    cost_ = cost;
    input_.consume(sizeof(std::uint64_t));
    list.emplace_back();
    // Memory that is never written costs nothing, so that it follows the bytes that come.
    if (unread().size() < length) list.back().reserve(length);
    announced_ = length;
    return Status::request;
}

RequestParser::Status RequestParser::refuse(std::string why) {
    refusal_ = std::move(why);
    input_.clear();
    partial_ = Request{};
    begun_ = false;
    announced_.reset();
    return Status::refused;
}

}  // namespace ddp::store
