// One end of the connection between a member and the coordinator: frames over a stream socket, TCP
// or a local one, in TLS where the job has a token. Single-threaded.
// Invariant: nothing here blocks; what the other side sends or leaves unread costs at most
// max_backlog_bytes in one direction and a frame in the other. Once TLS has begun, no frame comes
// from or goes to anybody who does not know the token.
#pragma once

#include "base/frame.hpp"
#include "base/unique_fd.hpp"
#include "launcher/hosts/messages/hello.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/hosts/tls_session.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

class Link {
public:
    static constexpr std::size_t max_backlog_bytes = std::size_t{64} << 20;
    static constexpr std::size_t bytes_a_call = std::size_t{1} << 20;

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
    // The same of a stranger's: see base::reset_connection().
    void reset(std::string why);

    // Of a link that begins with a hello: what has come so far, and that frames follow after so
    // many bytes of it.
    std::string_view before_frames() const { return before_frames_; }
    bool has_frames() const { return has_frames_; }
    void begin_frames(std::size_t hello);
    // From here on what is sent, and all frames that come, go through this session.
    void begin_tls(TlsSession session);
    // Why TLS could not begin, for the user. The link stays open, so that the other side hears it
    // too. Empty: there is no such reason.
    std::string tls_refusal() const;

    // For the next flush(); in TLS for the first one after the other side has proved itself.
    void queue(std::string_view frame);
    // For when little else waits to be sent; frames of queue() go before it. After queue_later()
    // another frame that has to come after that one is for queue_later(), too.
    void queue_later(std::string frame);
    void queue_hello(Transport transport) { out_ += encode_hello(transport); }
    // Sends what the socket takes now.
    void flush();
    // All is sent, and the other side is to close.
    void end_sending();
    bool wants_to_send() const { return is_open() && (sent_ < out_.size() || !later_.empty()); }

    // Takes in what has arrived, at most so many bytes.
    void receive(std::size_t most = bytes_a_call);
    // Without the length before it. A frame that is too long ends the link.
    std::optional<std::string> next();
    // All that has come, as it was on the wire.
    std::uint64_t received_bytes() const { return received_bytes_; }

    // Since when the other side's kernel has acknowledged nothing, a count of milliseconds (TCP's
    // own); 0 for a local socket, or where it cannot be had.
    std::chrono::milliseconds silent_for() const;
    // In digits; empty for a local socket.
    std::string own_address() const;
    std::string peer_address() const;

private:
    bool send_some();
    void queue_what_waits();
    void take_in(std::string_view bytes);
    void hand_on(std::string_view bytes);
    void take_from_tls();

    base::UniqueFd socket_;
    bool has_frames_;
    std::string before_frames_;
    std::optional<TlsSession> tls_;
    base::FrameReader reader_{max_link_message_bytes};
    std::uint64_t received_bytes_ = 0;
    std::string out_;
    std::size_t sent_ = 0;
    std::deque<std::string> later_;
    std::string trouble_;
};

}  // namespace ddp::launcher
