// ddp's store client against the server at HOST PORT: every method, with what it must return. The
// server's side sets "late" once "ready" is there, and looks at the keys left behind afterwards.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace std::chrono_literals;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "store_client: failed: %s\n", what);
    std::exit(1);
}

template <class Error, class Call>
void require_error(Call call, const char* what) {
    try {
        call();
    } catch (const Error&) {
        return;
    }
    require(false, what);
}

void use_every_method(ddp::Store& store) {
    store.set("k", "v");
    require(store.get("k") == "v", "get after set");
    require(store.try_get("absent") == std::nullopt, "try_get of an absent key");
    require(store.try_get("k") == "v", "try_get");
    require(store.add("n", 40) == 40 && store.add("n", 2) == 42, "add");
    require(store.check({"k", "n"}) && !store.check({"k", "absent"}), "check");
    require(store.compare_set("k", "x", "w") == "v", "compare_set of another value");
    require(store.compare_set("k", "v", "w") == "w", "compare_set");
    require(store.compare_set("new", "", "1") == "1", "compare_set of a new key");
    require(store.delete_key("new") && !store.delete_key("new"), "delete_key");
    std::string bytes;
    for (int i = 0; i < 1 << 20; ++i) bytes += static_cast<char>(i);
    store.multi_set({"binary", "empty"}, {bytes, ""});
    require(store.multi_get({"empty", "binary"}) == ddp::StoreValues{"", bytes}, "multi_get");
    require(store.num_keys() >= 4, "num_keys");
    require_error<ddp::TimeoutError>([&] { store.wait({"k", "never"}, 100ms); }, "wait too long");
    require_error<ddp::TimeoutError>([&] { store.get("never", 100ms); }, "get too long");
    store.wait({"k", "n"});
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 3, "usage: store_client HOST PORT");
    const ddp::MasterAddress server{argv[1], static_cast<std::uint16_t>(std::atoi(argv[2]))};
    try {
        const auto store = ddp::connect_tcp_store(server, 30s);
        use_every_method(*store);
        use_every_method(*ddp::make_prefix_store("prefix", store));
        require(store->get("from torch") == "hello", "a key that torch set");
        store->set("ready", "");
        require(store->get("late") == "come", "a key that comes while we wait");
        try {
            store->append("k", "x");
            require(store->get("k") == "wx", "append");
        } catch (const ddp::SystemError& error) {
            require(error.code() == EOPNOTSUPP, error.what());
        }
    } catch (const std::exception& error) {
        require(false, error.what());
    }
}
