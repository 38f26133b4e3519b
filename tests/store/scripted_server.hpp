// A server that follows a script on a thread, for what a well-behaved one does too rarely: die in
// the middle of a wait, answer a cancelled wait after all, answer nothing.
#pragma once

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <functional>
#include <span>
#include <string>
#include <thread>

#include "base/net/socket.hpp"
#include "wire_bytes.hpp"

namespace ddp::store_test {

class ScriptedServer {
public:
    // One accepted connection.
    class Peer {
    public:
        explicit Peer(base::UniqueFd fd) : fd_(std::move(fd)) {}
        std::string receive(std::size_t count) {
            std::string bytes(count, '\0');
            base::receive_all(fd_.get(), std::as_writable_bytes(std::span{bytes}), deadline());
            return bytes;
        }
        void send(const std::string& bytes) {
            base::send_all(fd_.get(), std::as_bytes(std::span{bytes}), deadline());
        }
        void expect(const std::string& bytes) { EXPECT_EQ(receive(bytes.size()), bytes); }
        // VALIDATE and PING, whose number comes back.
        void greet() {
            expect(hello + u8(13));
            send(receive(4));
        }
        void count_in() {
            expect(u8(4) + str("init/") + i64(1));
            send(i64(1));
        }
        // Waits until the client has closed the connection.
        void expect_end() { EXPECT_THROW(receive(1), SystemError); }

    private:
        static base::Deadline deadline() { return base::Deadline::after(std::chrono::seconds{30}); }
        base::UniqueFd fd_;
    };

    explicit ScriptedServer(std::function<void(ScriptedServer&)> script)
        : listener_(base::listen_tcp("127.0.0.1", 0)),
          port_(base::local_port(listener_.get())),
          thread_([this, script = std::move(script)] {
              try {
                  script(*this);
              } catch (const std::exception& error) {
                  ADD_FAILURE() << "the script failed: " << error.what();
              }
              listener_.reset();
          }) {}
    ~ScriptedServer() { join(); }
    ScriptedServer(const ScriptedServer&) = delete;
    ScriptedServer& operator=(const ScriptedServer&) = delete;

    std::uint16_t port() const { return port_; }
    Peer accept() {
        const auto deadline = base::Deadline::after(std::chrono::seconds{30});
        EXPECT_TRUE(base::wait_readable(listener_.get(), deadline));
        return Peer{base::UniqueFd{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)}};
    }
    void stop_listening() { listener_.reset(); }  // from the script
    void join() {
        if (thread_.joinable()) thread_.join();
    }

private:
    base::UniqueFd listener_;
    std::uint16_t port_;
    std::thread thread_;
};

}  // namespace ddp::store_test
