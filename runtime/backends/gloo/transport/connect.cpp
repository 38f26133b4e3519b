#include "backends/gloo/transport/connect.hpp"

#include "backends/gloo/transport/gloo_transport.hpp"
#include "backends/gloo/transport/ucx_start.hpp"
#include "base/log.hpp"
#include "base/net/socket.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

// What a rank tells the others through the store, each in a line but the last.
struct Offer {
    PeerProcess process;
    bool insists = false;  // nothing else than UCX will do
    bool has_ucx = false;
    std::string wire_version;  // of UCX
    std::string rest;          // UCX's address, or why there is none

    std::string to_text() const {
        return std::to_string(process.pid) + "\n" + process.host + "\n" + std::to_string(insists) +
               "\n" + std::to_string(has_ucx) + "\n" + wire_version + "\n" + rest;
    }
    static Offer parse(std::string_view text) {
        const auto take_line = [&] {
            const std::string_view line = text.substr(0, text.find('\n'));
            text.remove_prefix(std::min(line.size() + 1, text.size()));
            return std::string(line);
        };
        Offer offer;
        offer.process.pid = static_cast<pid_t>(std::atoi(take_line().c_str()));
        offer.process.host = take_line();
        offer.insists = take_line() == "1";
        offer.has_ucx = take_line() == "1";
        offer.wire_version = take_line();
        offer.rest = text;
        return offer;
    }
};

Offer make_offer(const Group& group, const Network& network, std::unique_ptr<UcxStart>& ucx) {
    const char* const variable = std::getenv("DDP_HOST_TRANSPORT");
    const std::string wanted = variable != nullptr && *variable != '\0' ? variable : "auto";
    Offer offer{.process = {::getpid(), base::host_name()},
                .insists = wanted == "ucx",
                .wire_version = "",
                .rest = ""};
    if (wanted == "gloo") {
        offer.rest = "it is gloo there";
    } else if (wanted != "auto" && wanted != "ucx") {
        offer.insists = true;  // so that no rank goes on
        offer.rest = "it is " + wanted + "; it can be auto, ucx or gloo";
    } else if (wanted == "auto" && group.on_one_host) {
        offer.rest = "all ranks are on one host, whose other users could write to UCX's memory";
    } else if (network.ucx_interface.empty()) {
        offer.rest = "ucx: it takes the first IPv4 address of a network interface, and not " +
                     network.address;
    } else {
        try {
            ucx = start_ucx(network.ucx_interface);
            offer.rest = ucx->address();
            offer.wire_version = ucx->wire_version();
            offer.has_ucx = true;
        } catch (const BackendError& error) {
            offer.rest = error.what();
        }
    }
    return offer;
}

// Why the ranks cannot use UCX; nothing: they can.
std::string find_refusal(const std::vector<Offer>& offers) {
    for (std::size_t rank = 0; rank < offers.size(); ++rank) {
        const Offer& offer = offers[rank];
        if (offer.has_ucx && offer.wire_version == offers[0].wire_version) continue;
        return "rank " + std::to_string(rank) + " on host " + offer.process.host + ": " +
               (offer.has_ucx ? offer.wire_version + ", and rank 0's is " + offers[0].wire_version
                              : offer.rest);
    }
    return {};
}

// Texts of all ranks, by rank, under keys of one kind.
StoreValues exchange_texts(const Group& group, const std::string& kind, const std::string& own,
                           const base::Deadline& deadline) {
    StoreKeys keys;
    for (int rank = 0; rank < group.ranks; ++rank) {
        keys.push_back("mesh/" + kind + "/" + std::to_string(rank));
    }
    group.store->set(keys[static_cast<std::size_t>(group.rank)], own);
    return group.store->multi_get(keys, deadline.left());
}

// Null on all ranks where one of them could not connect: `refusal` says why.
std::unique_ptr<Transport> connect_by_ucx(UcxStart& start, const Group& group,
                                          const std::vector<Offer>& offers,
                                          const base::Deadline& deadline,
                                          const std::function<bool()>& has_trouble,
                                          std::string& refusal) {
    std::vector<PeerProcess> processes;
    std::vector<std::string> addresses;
    for (const Offer& offer : offers) {
        processes.push_back(offer.process);
        addresses.push_back(offer.rest);
    }
    std::unique_ptr<Transport> transport;
    std::string own;
    try {
        // All ranks are here by now; what is left of the time is Gloo's.
        const auto connected = base::Deadline::after(std::max(deadline.left() / 3, 1ms));
        transport =
            start.connect(group.rank, std::move(processes), addresses, connected, has_trouble);
    } catch (const std::exception& error) {
        own = error.what();
    }
    for (const std::string& text : exchange_texts(group, "connected", own, deadline)) {
        if (refusal.empty()) refusal = text;
    }
    return refusal.empty() ? std::move(transport) : nullptr;
}

}  // namespace

std::unique_ptr<Transport> connect_transport(const Group& group, const Network& network,
                                             const base::Deadline& deadline,
                                             std::function<bool()> has_trouble) {
    std::unique_ptr<UcxStart> ucx;
    const Offer own = make_offer(group, network, ucx);
    std::vector<Offer> offers;
    bool required = false;
    for (const std::string& text : exchange_texts(group, "offer", own.to_text(), deadline)) {
        offers.push_back(Offer::parse(text));
        required = required || offers.back().insists;
    }
    std::string refusal = find_refusal(offers);
    if (refusal.empty()) {
        auto transport = connect_by_ucx(*ucx, group, offers, deadline, has_trouble, refusal);
        if (transport) return transport;
        if (!required && group.rank == 0) {
            base::log_warn("backends",
                           "Gloo moves the messages between hosts, as UCX cannot: " + refusal);
        }
    }
    if (required) {
        throw UsageError("what DDP_HOST_TRANSPORT says cannot be had on all ranks: " + refusal);
    }
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("backends", "Gloo moves the messages; UCX: " + refusal);
    }
    return std::make_unique<GlooTransport>(group, network.address, deadline,
                                           std::move(has_trouble));
}

}  // namespace ddp::gloo
