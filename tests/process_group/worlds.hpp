// The worlds of the collective tests: a forked process a rank.
#pragma once

#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace ddp::testing {

template <class Body>
void on_worlds(std::initializer_list<int> worlds, const Body& body) {
    for (const int ranks : worlds) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        run_ranks(ranks, body);
    }
}

}  // namespace ddp::testing
