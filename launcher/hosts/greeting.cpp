#include "launcher/hosts/greeting.hpp"

#include "launcher/hosts/messages/hello.hpp"
#include "launcher/hosts/messages/messages.hpp"

namespace ddp::launcher {
namespace {

std::string place_of(const Link& link) {
    const std::string address = link.peer_address();
    return "the agent " + (address.empty() ? "on this host" : "at " + address);
}

std::string words_for(Transport transport, const char* nothing, const char* token) {
    if (transport == Transport::clear) return nothing;
    return transport == Transport::tls ? token : "MUNGE instead of a job token";
}

// Why an agent that says this hello cannot join; empty: it can, or it is none.
std::string refusal_of(const SaidHello& hello, const Link& link, const JobProof& proof) {
    if (hello.kind == Hello::other_version) {
        return "this ddp-launch speaks version " + std::to_string(link_version) +
               " between hosts, that of " + link.peer_address() + " version " +
               std::to_string(hello.version) + "; all hosts need one release";
    }
    const Transport wanted = !proof.credential.empty() ? Transport::credential
                             : proof.tls               ? Transport::tls
                                                       : Transport::clear;
    if (hello.kind != Hello::agent || hello.transport == wanted) return {};
    const bool has_nothing = hello.transport == Transport::clear;
    return place_of(link) + " has " + words_for(hello.transport, "no job token", "a job token") +
           ", and this job has " + words_for(wanted, "none", has_nothing ? "one" : "a job token") +
           ": DDP_JOB_TOKEN_FILE has to hold the same token on all hosts";
}

}  // namespace

std::string greet(Link& link, const JobProof& proof) {
    if (!link.has_frames()) {
        const SaidHello hello = look_for_hello(link.before_frames());
        if (hello.kind == Hello::stranger) link.reset("it is no agent");
        std::string why = refusal_of(hello, link, proof);
        if (hello.kind == Hello::agent && proof.is_there() && !proof.tls) {
            why = "this host has yet to be told the job token";
        }
        if (hello.kind != Hello::agent || !why.empty()) return why;
        if (hello.transport == Transport::credential) {
            link.queue(encode(FromCoordinator(CredentialMessage{proof.credential})));
        }
        if (proof.tls) link.begin_tls(proof.tls->session(TlsRole::server, place_of(link)));
        link.begin_frames(hello_bytes);
    }
    return link.tls_refusal();
}

}  // namespace ddp::launcher
