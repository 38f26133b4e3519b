// The seed of a random test, printed so that a failure can be repeated: DDP_TEST_SEED=<number>.
#pragma once

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace ddp::store_test {

inline unsigned random_seed() {
    const char* given = std::getenv("DDP_TEST_SEED");
    const auto seed =
        given == nullptr ? std::random_device{}() : static_cast<unsigned>(std::stoul(given));
    std::cout << "DDP_TEST_SEED=" << seed << std::endl;
    return seed;
}

}  // namespace ddp::store_test
