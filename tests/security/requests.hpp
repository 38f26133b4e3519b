// Store requests as any program could send them, put together by hand, and who counts what comes
// back.
#pragma once

#include "base/deadline.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::security_test {

// The start of all keys that a stranger sets.
inline const std::string stranger_key = "/stranger/";
// What a friend has put there before: a key and its value.
inline const std::string known_key = "/known";
inline const std::string known_value = "17";

// Conversations of one request each, of both numberings and every operation, in turn. Each ends
// with a question that a server answers always, so that a reply says that the request was executed.
std::vector<std::string> conversations();

struct Tally {
    std::atomic<std::uint64_t> answered;  // something came back: the request was executed
    std::atomic<std::uint64_t> closed;    // nothing did, and the server ended the connection
    std::atomic<std::uint64_t> failed;    // to connect
};

// Where a store is: at a port of 127.0.0.1, or, where there is a name, at that local socket.
struct StorePlace {
    std::uint16_t port = 0;
    std::string name = {};
};

// Sends `count` of them there, each on a connection of its own, up to 32 at once. Those that have
// neither an answer nor an end by the deadline are in no column.
void send_requests(const StorePlace& place, std::size_t count, const base::Deadline& deadline,
                   Tally& tally);

// One who is served: the test itself.
class Friend {
public:
    explicit Friend(std::uint16_t port);
    ~Friend();
    Friend(const Friend&) = delete;
    Friend& operator=(const Friend&) = delete;

    void set(const std::string& key, const std::string& value);
    std::string get(const std::string& key);
    std::vector<std::string> keys();

private:
    void ping();
    void send(const std::string& bytes);
    std::string receive(std::size_t count);
    std::uint64_t receive_number();

    int fd_;
};

// A connected, blocking socket whose sends and reads end after 10 s; -1: nobody listens.
int connect_to(std::uint16_t port);

}  // namespace ddp::security_test
