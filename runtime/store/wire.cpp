// One table says what follows each opcode; encoding, scanning and decoding all walk it. Scanning
// finds a request's end and can stop at any byte and go on later, so that a client that sends byte
// by byte costs no more than one that sends at once. Invariant: decode() runs only on bytes that
// scan() has accepted.
#include "store/wire.hpp"

#include <ddp/error.hpp>

#include <array>
#include <span>

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
constexpr std::uint8_t join_on_wire = 64;  // far from what PyTorch may add

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

std::string_view take(std::string_view& bytes, std::size_t count) {
    const auto taken = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return taken;
}

std::uint64_t take_u64(std::string_view& bytes) { return read_u64(take(bytes, 8)); }
std::string take_string(std::string_view& bytes) {
    return std::string{take(bytes, take_u64(bytes))};
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

void RequestParser::feed(std::string_view bytes) {
    if (begin_ > 0 && begin_ >= buffer_.size() / 2) {
        buffer_.erase(0, begin_);
        begin_ = 0;
    }
    buffer_.append(bytes);
}

RequestParser::Status RequestParser::next(Request& request) {
    if (!refusal_.empty()) return Status::refused;
    if (era_ == Era::undecided) {
        if (const auto status = identify(); status != Status::request) return status;
    }
    if (scanned_ == 0) {
        if (const auto status = start(); status != Status::request) return status;
    }
    if (const auto status = scan(); status != Status::request) return status;
    decode(request);
    begin_ += scanned_;
    scanned_ = 0;
    if (begin_ == buffer_.size()) {
        std::string{}.swap(buffer_);  // gives a large request's memory back
        begin_ = 0;
    }
    return Status::request;
}

// Decides the numbering from the first bytes and, in the newer one, consumes VALIDATE.
RequestParser::Status RequestParser::identify() {
    const auto bytes = unread();
    if (bytes.empty()) return Status::incomplete;
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (first == reserved_hello) return refuse("an authenticated hello, which is not known yet");
    if (first >= legacy_opcodes.size()) return refuse("not a client of a store");
    std::string hello(1, '\0');
    append_u32(hello, validate_magic);
    if (!hello.starts_with(bytes.substr(0, hello.size()))) {
        era_ = Era::legacy;
        return Status::request;
    }
    if (bytes.size() < hello.size()) return Status::incomplete;
    era_ = Era::modern;
    begin_ += hello.size();
    return Status::request;
}

RequestParser::Status RequestParser::start() {
    if (unread().empty()) return Status::incomplete;
    const auto number = static_cast<std::size_t>(static_cast<unsigned char>(unread()[0]));
    if (era_ == Era::legacy) {
        if (number >= legacy_opcodes.size()) return refuse("unknown operation");
        op_ = legacy_opcodes[number];
    } else if (number == join_on_wire) {
        op_ = Opcode::join;
    } else {
        if (number == 0 || number > last_modern_opcode) return refuse("unknown operation");
        op_ = static_cast<Opcode>(number);
    }
    scanned_ = 1;
    field_ = 0;
    items_left_ = 0;
    return Status::request;
}

RequestParser::Status RequestParser::scan() {
    while (true) {
        if (items_left_ > 0) {
            const bool is_value = fields(op_)[field_] == Field::pairs && items_left_ % 2 == 1;
            const auto status = scan_string(is_value ? max_value_bytes : max_key_bytes);
            if (status != Status::request) return status;
            if (--items_left_ == 0) ++field_;
            continue;
        }
        if (field_ == fields(op_).size() || fields(op_)[field_] == Field::none) {
            return Status::request;
        }
        if (const auto status = scan_field(); status != Status::request) return status;
        if (items_left_ == 0) ++field_;
    }
}

RequestParser::Status RequestParser::scan_field() {
    switch (fields(op_)[field_]) {
        case Field::none:
            return Status::request;
        case Field::key:
            return scan_string(max_key_bytes);
        case Field::value:
            return scan_string(max_value_bytes);
        case Field::number32:
            return need(sizeof(std::uint32_t));
        case Field::number64:
            return need(sizeof(std::int64_t));
        case Field::keys:
            return scan_count(1);
        case Field::pairs:
            return scan_count(2);
    }
    return refuse("unknown operation");
}

RequestParser::Status RequestParser::scan_string(std::size_t limit) {
    const auto rest = unread().substr(scanned_);
    if (rest.size() < sizeof(std::uint64_t)) return Status::incomplete;
    const auto length = read_u64(rest);
    if (length > limit) {
        return refuse("a length of " + std::to_string(length) + " where at most " +
                      std::to_string(limit) + " is allowed");
    }
    return need(sizeof(std::uint64_t) + length);
}

RequestParser::Status RequestParser::scan_count(std::size_t items_per_entry) {
    const auto rest = unread().substr(scanned_);
    if (rest.size() < sizeof(std::uint64_t)) return Status::incomplete;
    const auto count = read_u64(rest);
    if (count > max_keys_per_request) {
        return refuse(std::to_string(count) + " keys where at most " +
                      std::to_string(max_keys_per_request) + " are allowed");
    }
    items_left_ = count * items_per_entry;
    return need(sizeof(std::uint64_t));
}

// Steps over bytes once they are all there.
RequestParser::Status RequestParser::need(std::size_t bytes) {
    if (scanned_ + bytes > max_request_bytes) return refuse("a request of more than 64 MiB");
    if (unread().size() - scanned_ < bytes) return Status::incomplete;
    scanned_ += bytes;
    return Status::request;
}

RequestParser::Status RequestParser::refuse(std::string why) {
    refusal_ = std::move(why);
    std::string{}.swap(buffer_);
    begin_ = 0;
    return Status::refused;
}

void RequestParser::decode(Request& request) {
    request = Request{.op = op_};
    auto rest = unread().substr(1, scanned_ - 1);
    for (const auto field : fields(op_)) {
        switch (field) {
            case Field::none:
                break;
            case Field::key:
                request.keys.push_back(take_string(rest));
                break;
            case Field::value:
                request.values.push_back(take_string(rest));
                break;
            case Field::number32:
                request.number = read_u32(take(rest, 4));
                break;
            case Field::number64:
                request.number = static_cast<std::int64_t>(take_u64(rest));
                break;
            case Field::keys:
            case Field::pairs:
                for (auto count = take_u64(rest); count > 0; --count) {
                    request.keys.push_back(take_string(rest));
                    if (field == Field::pairs) request.values.push_back(take_string(rest));
                }
                break;
        }
    }
}

}  // namespace ddp::store
