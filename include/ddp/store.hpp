// Stores: small maps from names to bytes that all ranks of a job share; how they find each other.
// Not for data: a value is at most 8 MiB, a key at most 8 KiB (larger is a UsageError).
// The wire format of TcpStore is that of PyTorch's TCPStore, so either side may be PyTorch's:
// see runtime/store/protocol.md.
#pragma once

#include <ddp/export.hpp>
#include <ddp/master_address.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

using StoreKeys = std::vector<std::string>;  // names
// Of such keys, in their order.
using StoreValues = std::vector<std::string>;

// All members may be called from several threads at once; a thread that waits never delays another.
// Each throws TimeoutError when its deadline passes, naming the keys, and SystemError when the
// store cannot be reached. Values are opaque bytes. Source: torch.distributed.Store.
class DDP_API Store {
public:
    using Timeout = std::chrono::milliseconds;  // how long a call may take

    virtual ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    // Over TCP set, append and multi_set return when the bytes are on their way; an error shows at
    // the next call, and another rank sees the value a moment later.
    virtual void set(const std::string& key, const std::string& value) = 0;
    // Waits until the key is there, then returns its value.
    std::string get(const std::string& key) { return get(key, timeout()); }
    virtual std::string get(const std::string& key, Timeout) = 0;
    // The value if the key is there now. Does not wait for it.
    virtual std::optional<std::string> try_get(const std::string& key) = 0;
    // Adds to the decimal number under the key (absent: 0) and returns the sum.
    virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
    // Whether all keys are there now.
    virtual bool check(const StoreKeys&) = 0;
    void wait(const StoreKeys& keys) { wait(keys, timeout()); }
    virtual void wait(const StoreKeys&, Timeout) = 0;
    // Sets the key to `desired` if it holds `expected` (or is absent and `expected` is empty);
    // returns what it holds afterwards, or `expected` when it is absent and not set (as PyTorch).
    virtual std::string compare_set(const std::string& key, const std::string& expected,
                                    const std::string& desired) = 0;
    // Whether the key was there.
    virtual bool delete_key(const std::string& key) = 0;
    virtual void append(const std::string& key, const std::string& value) = 0;
    // Waits for all keys, as get. At most 64 MiB in all; multi_set takes at most 16 MiB.
    StoreValues multi_get(const StoreKeys& keys) { return multi_get(keys, timeout()); }
    virtual StoreValues multi_get(const StoreKeys&, Timeout) = 0;
    virtual void multi_set(const StoreKeys&, const StoreValues&) = 0;
    // How many keys the store holds in all: also those behind other prefixes and, over TCP, the
    // key in which clients count themselves.
    virtual std::int64_t num_keys() = 0;

    // The deadline of calls that name none.
    virtual Timeout timeout() const = 0;

protected:
    Store() = default;
};

// In this process only; for a world of one and for tests.
DDP_API std::shared_ptr<Store> make_memory_store(Store::Timeout timeout = std::chrono::minutes{5});

// In one file that all ranks can open and lock (one host, or a shared file system with working
// locks). The file is created if absent and stays: the caller removes it. A path left over from an
// earlier job is refused by nobody: use a fresh name per job. Throws SystemError when it cannot be
// opened.
DDP_API std::shared_ptr<Store> make_file_store(std::string path,
                                               Store::Timeout timeout = std::chrono::minutes{5});

// A client of the store that listens at `master`. Retries until `timeout` for as long as nobody
// listens there, the host cannot be reached, or its name does not resolve.
DDP_API std::shared_ptr<Store> connect_tcp_store(const MasterAddress& master,
                                                 Store::Timeout timeout = std::chrono::minutes{5});

// A view of `store` in which each key k stands for "prefix/k".
DDP_API std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

// The server of TCP stores, on a thread of its own, until it is destroyed. Binds all addresses of
// `host` that this host has, and no others; port 0 asks for a free one. A name other than localhost
// that means loopback here (Debian: 127.0.1.1 is the host's own name) binds all addresses of this
// host, with a warning, since other hosts know the name by another address. Looking a name up may
// block. Throws SystemError that names address and port when they are taken.
class DDP_API TcpStoreServer {
public:
    // Serves from now on.
    explicit TcpStoreServer(const MasterAddress& listen_on);
    ~TcpStoreServer();
    TcpStoreServer(TcpStoreServer&&) noexcept;
    TcpStoreServer& operator=(TcpStoreServer&&) noexcept;
    std::uint16_t port() const noexcept;  // that it listens on

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
