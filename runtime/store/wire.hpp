// The requests of the TCP store as bytes and back, in both numberings: see protocol.md. Requests
// arrive in pieces of any size and are decoded as they come. Invariant: every length is compared
// with its limit before it is believed; the parser holds at most one request of the size that is
// allowed, and the bytes of one read that follow it.
#pragma once

#include <ddp/store.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/input_buffer.hpp"
#include "store/limits.hpp"

namespace ddp::store {

inline constexpr std::uint32_t validate_magic = 0x3C85F7CE;
inline constexpr std::uint8_t agent_hello = 0xDD;  // begins what agents say, and no request

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
    join,       // ddp's own, as 65
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

// What a string of a request, or of a list of keys, costs beside its bytes.
inline constexpr std::size_t string_overhead = 64;

// What a whole request costs in memory.
std::size_t cost_of(const Request& request);

// Cuts one connection's bytes into requests.
class RequestParser {
public:
    // needs_memory: the request would cost wanted_memory() bytes, which is more than it may have
    // without grant_memory().
    enum class Status { request, incomplete, needs_memory, refused };

    // What follows on what was fed before; when that has not been used up, it is kept as well.
    void feed(std::string_view bytes);
    // Fills `request` with the next one. `refused` is final: refusal() says why; close the
    // connection.
    Status next(Request& request);

    Era era() const { return era_; }
    const std::string& refusal() const { return refusal_; }

    std::size_t wanted_memory() const { return wanted_memory_; }
    // Whether the request is a list whose end cannot be foreseen.
    bool wants_more_later() const;
    // The request that has begun may cost that much.
    void grant_memory(std::size_t bytes) { granted_ = bytes; }
    // What the request that has begun was allowed beyond what is free.
    std::size_t granted_memory() const { return granted_ > bytes_without_grant ? granted_ : 0; }
    // What the request that has begun and the bytes after it cost now, what was allowed included.
    std::size_t held_bytes() const;
    std::uint64_t received_bytes() const { return input_.received(); }  // in all
    bool has_unread() const { return input_.has_unread(); }
    std::size_t unread_bytes() const { return input_.held_bytes(); }

    static constexpr std::size_t bytes_without_grant = std::size_t{64} << 10;

private:
    Status identify();
    Status start();
    Status take_field();
    Status take_list();
    Status take_string(std::vector<std::string>& list, std::size_t limit);
    Status announce(std::vector<std::string>& list, std::size_t limit);
    Status refuse(std::string why);
    std::string_view unread() const { return input_.unread(); }

    InputBuffer input_;  // fed and not yet decoded
    Era era_ = Era::undecided;
    bool is_first_ = true;  // no whole request yet
    std::string refusal_;

    // The request that has begun.
    bool begun_ = false;
    Request partial_;
    std::size_t field_ = 0;                 // of the operation's fields, the one that comes now
    bool counted_ = false;                  // the list's count has come
    std::size_t items_left_ = 0;            // strings of the list still to come
    std::optional<std::size_t> announced_;  // length of the string that has begun
    std::size_t size_ = 0;                  // bytes on the wire, with what is announced
    std::size_t cost_ = 0;                  // in memory
    std::size_t granted_ = bytes_without_grant;
    std::size_t wanted_memory_ = 0;
};

}  // namespace ddp::store
