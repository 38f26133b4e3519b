// The seed of a random test on several ranks: one for all of them.
#pragma once

#include "support/seed.hpp"

#include <ddp/testing.hpp>

#include <string>

namespace ddp::testing {

inline unsigned seed_for_ranks() {
    const auto make = [] { return std::to_string(store_test::random_seed()); };
    return static_cast<unsigned>(std::stoul(made_once(make)));
}

}  // namespace ddp::testing
