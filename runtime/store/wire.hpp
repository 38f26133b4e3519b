// The requests of the TCP store as bytes and back, in both numberings: see protocol.md. Requests
// arrive in pieces of any size. Invariant: every length is compared with its limit before it is
// believed, and the parser never holds more than one request and what was fed after it.
#pragma once

#include <ddp/store.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "store/limits.hpp"

namespace ddp::store {

inline constexpr std::uint32_t validate_magic = 0x3C85F7CE;
inline constexpr std::uint8_t reserved_hello = 0xDD;  // for an authenticated hello to come

// The values up to `barrier` are the newer numbering's opcodes.
enum class Opcode : std::uint8_t {
    validate,
    set,
    compare_set,
    get,
    add,
    check,
    wait,
    get_num_keys,
    delete_key,
    append,
    multi_get,
    multi_set,
    cancel_wait,
    ping,
    queue_push,
    queue_pop,
    queue_len,
    list_keys,
    barrier,
    watch_key,  // only in the 1.13 numbering, as 7
    join,       // ddp's own, as 64
};
inline constexpr std::size_t opcode_count = 21;

enum class Era { undecided, modern, legacy };  // modern: PyTorch 2.2 and newer, and ddp

enum class CheckReply : std::uint8_t { ready, not_ready };
enum class WaitReply : std::uint8_t { stop_waiting, wait_canceled };
enum class JoinReply : std::uint8_t { joined, refused };
enum class WatchEvent : std::uint8_t { updated, created, deleted, registered, appended };

struct Request {
    Opcode op = Opcode::ping;
    StoreKeys keys{};
    StoreValues values{};     // compare_set: expected, desired
    std::int64_t number = 0;  // ping: the nonce; add: the amount; barrier: the world size
};

// The request's bytes. The operation must exist in that numbering.
std::string encode_request(const Request& request, Era era);

void append_u8(std::string& out, std::uint8_t number);
void append_u32(std::string& out, std::uint32_t number);
void append_u64(std::string& out, std::uint64_t number);
void append_i64(std::string& out, std::int64_t number);
void append_bytes(std::string& out, std::string_view bytes);  // u64 length first
// Little-endian; `bytes` holds at least as many as the number has.
std::uint32_t read_u32(std::string_view bytes);
std::uint64_t read_u64(std::string_view bytes);

// Cuts one connection's bytes into requests.
class RequestParser {
public:
    enum class Status { request, incomplete, refused };

    void feed(std::string_view bytes);
    // Fills `request` with the next one. `refused` is final: refusal() says why; close the
    // connection.
    Status next(Request& request);

    Era era() const { return era_; }
    const std::string& refusal() const { return refusal_; }

private:
    Status identify();
    Status start();
    Status scan();
    Status scan_field();
    Status scan_string(std::size_t limit);
    Status scan_count(std::size_t items_per_entry);
    Status need(std::size_t bytes);
    Status refuse(std::string why);
    void decode(Request& request);
    std::string_view unread() const { return std::string_view{buffer_}.substr(begin_); }

    std::string buffer_;
    std::size_t begin_ = 0;  // where the current request starts
    std::size_t scanned_ =
        0;  // bytes of it that have been looked at; 0: its opcode is not yet known
    Opcode op_ = Opcode::ping;
    std::size_t field_ = 0;       // of the operation's fields, the one being scanned
    std::size_t items_left_ = 0;  // strings of a list still to come
    Era era_ = Era::undecided;
    std::string refusal_;
};

}  // namespace ddp::store
