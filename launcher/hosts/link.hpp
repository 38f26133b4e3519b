// One end of the connection between a member and the coordinator: frames over a stream socket, TCP
// or a local one. Single-threaded.
// Invariant: nothing here blocks; what the other side sends or leaves unread costs at most
// max_backlog_bytes in one direction and a frame in the other.
#pragma once

#include "base/frame.hpp"
#include "base/unique_fd.hpp"
#include "launcher/hosts/messages.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

class Link {
public:
    static constexpr std::size_t max_backlog_bytes = std::size_t{64} << 20;

    // Whether the other side begins with a hello.
    enum class Begins : std::uint8_t { with_hello, with_frames };

    // `received`: what was read from the socket before.
    Link(base::UniqueFd socket, Begins begins, std::string_view received = {});

    // Valid until the object goes, also once the connection has ended.
    int fd() const { return socket_.get(); }
    // What came before the end is still handed out.
    bool is_open() const { return trouble_.empty(); }
    // Why it has ended: "the connection was closed".
    const std::string& trouble() const { return trouble_; }
    // Ends it, with this reason.
    void close(std::string why);

    // Of a link that begins with a hello: what has come so far, and that frames follow after so
    // many bytes of it.
    std::string_view before_frames() const { return before_frames_; }
    void begin_frames(std::size_t hello);

    // For the next flush().
    void queue(std::string_view frame);
    void queue_hello() { out_ += encode_hello(); }
    // Sends what the socket takes now.
    void flush();
    // All is sent, and the other side is to close.
    void end_sending();
    bool wants_to_send() const { return is_open() && sent_ < out_.size(); }

    // Takes in what has arrived, a bounded amount a call.
    void receive();
    // Without the length before it. A frame that is too long ends the link.
    std::optional<std::string> next();
    // All that has come.
    std::uint64_t received_bytes() const { return received_bytes_; }

    // Since when the other side's kernel has acknowledged nothing, a count of milliseconds (TCP's
    // own); 0 for a local socket, or where it cannot be had.
    std::chrono::milliseconds silent_for() const;
    // In digits; empty for a local socket.
    std::string own_address() const;
    std::string peer_address() const;

private:
    void take_in(std::string_view bytes);

    base::UniqueFd socket_;
    bool has_frames_;
    std::string before_frames_;
    base::FrameReader reader_{max_link_message_bytes};
    std::uint64_t received_bytes_ = 0;
    std::string out_;
    std::size_t sent_ = 0;
    std::string trouble_;
};

}  // namespace ddp::launcher
