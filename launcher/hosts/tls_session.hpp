// TLS 1.3 between a member and the coordinator, with the job's token as external pre-shared key and
// a Diffie-Hellman exchange beside it (RFC 8446, psk_dhe_ke); no certificate counts. Bytes from the
// wire go in and plain ones come out, and back: no socket, no clock.
// OpenSSL's libssl.so.3 is loaded when the first context is made, so that a launcher without a
// token needs none.
// Invariant: nothing plain is handed out, nor what was written handed to the wire, before the other
// side has proved that it knows the token.
#pragma once

#include "launcher/hosts/job_token.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ddp::launcher {

enum class TlsRole : std::uint8_t { client, server };  // the member is the client

// One end of one connection. Nothing here blocks or throws but std::bad_alloc.
class TlsSession {
public:
    TlsSession(TlsSession&&) noexcept;
    TlsSession& operator=(TlsSession&&) noexcept;
    ~TlsSession();

    // What has come from the other side, cut anywhere.
    void take_in(std::string_view wire);
    // What that meant, each byte once.
    std::string take_plain();

    // Waits until the other side has proved itself.
    void write(std::string_view plain);
    std::size_t waiting_bytes() const;
    // What is to be sent to the other side, each byte once; also after trouble, which it is told.
    std::string take_wire();

    // The other side knows the token.
    bool is_established() const;
    // Why the session has ended, in words that name the other side: "the job tokens of the
    // coordinator and this host differ". Before is_established(): why it never began. Empty: it
    // goes on.
    const std::string& trouble() const;

private:
    friend class TlsContext;
    struct State;
    explicit TlsSession(std::unique_ptr<State> state);

    std::unique_ptr<State> state_;
};

// What all sessions of a job share: the token and libssl. Copies are one context.
class TlsContext {
public:
    // Throws UsageError where libssl.so.3 cannot be had: without TLS the token is no use.
    explicit TlsContext(const JobToken& token);

    // `other`: how trouble() calls the other side. A client's first bytes are ready at once.
    // Throws SystemError where there is no memory.
    TlsSession session(TlsRole role, std::string other) const;

    // The name of the token in the client's hello, which whoever listens may read.
    const std::string& identity() const;

private:
    friend class TlsSession;
    struct Shared;
    std::shared_ptr<const Shared> shared_;
};

}  // namespace ddp::launcher
