// What the worker of README.md takes for granted: a reader's own net, optimiser and data.
#pragma once

#include "nn/digits.hpp"
#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

struct Net : nn::Mlp {
    Net() : Mlp{64, 128, 10} {}
};
using nn::Sgd;
inline const nn::Digits data = nn::Digits::load(DDP_DIGITS_FOLDER);
