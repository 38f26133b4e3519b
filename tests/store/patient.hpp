// How long tests of stores wait for what must come.
#pragma once

#include <ddp/store.hpp>

#include <chrono>

namespace ddp::store_test {

constexpr Store::Timeout patient = std::chrono::seconds{30};

}  // namespace ddp::store_test
