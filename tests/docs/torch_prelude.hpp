// What the blocks of docs/from_pytorch.md with LibTorch include. Each block is the body of a
// function.
#pragma once

#include <ddp/ddp.hpp>
#include <ddp/torch.hpp>

#include <torch/torch.h>

#include <iostream>
