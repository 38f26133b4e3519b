// ddp-store-speed CLIENTS ROUNDS: how many small operations a store's server serves. Each client
// is a thread with a connection of its own; in each round it sets its key, waits for its
// neighbour's, gets it, and adds to a counter. Prints operations a second, all clients together.
// The server is the one at MASTER_ADDR:MASTER_PORT, so that ddp-launch of any build can serve.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr int operations_a_round = 4;

std::string key_of(int round, int client) {
    return "speed/" + std::to_string(round) + "/" + std::to_string(client);
}

void run_client(ddp::Store& store, int client, int clients, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        const std::string mine = std::to_string(client) + " in round " + std::to_string(round);
        const int other = (client + 1) % clients;
        store.set(key_of(round, client), mine);
        store.wait({key_of(round, other)});
        if (store.get(key_of(round, other)).empty()) throw ddp::Error("an empty value");
        store.add("speed/sum", 1);
        if (round > 0) store.delete_key(key_of(round - 1, other));
    }
}

double operations_a_second(const ddp::MasterAddress& server, int clients, int rounds) {
    std::vector<std::shared_ptr<ddp::Store>> stores;
    for (int i = 0; i < clients; ++i) stores.push_back(ddp::connect_tcp_store(server, 30s));
    std::barrier start(clients + 1);
    std::atomic<int> failed{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < clients; ++i) {
        threads.emplace_back([&, i] {
            start.arrive_and_wait();
            try {
                run_client(*stores[static_cast<std::size_t>(i)], i, clients, rounds);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "ddp-store-speed: %s\n", error.what());
                failed.fetch_add(1);
            }
        });
    }
    start.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    threads.clear();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    const auto rounds_in_all = std::int64_t{clients} * rounds;
    if (failed > 0) throw ddp::Error("a client failed");
    if (stores[0]->add("speed/sum", 0) != rounds_in_all) throw ddp::Error("the sum is wrong");
    return static_cast<double>(rounds_in_all * operations_a_round) / time.count();
}

}  // namespace

int main(int argc, char** argv) {
    const char* host = std::getenv("MASTER_ADDR");
    const char* port = std::getenv("MASTER_PORT");
    if (argc != 3 || host == nullptr || port == nullptr) {
        std::fprintf(stderr, "usage: ddp-launch -n 1 -- ddp-store-speed CLIENTS ROUNDS\n");
        return 2;
    }
    try {
        const ddp::MasterAddress server{host, static_cast<std::uint16_t>(std::atoi(port))};
        std::printf("%.0f\n", operations_a_second(server, std::atoi(argv[1]), std::atoi(argv[2])));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ddp-store-speed: %s\n", error.what());
        return 1;
    }
    return 0;
}
