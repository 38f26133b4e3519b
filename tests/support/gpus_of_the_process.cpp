// GPUs and NCCL that are not there, for a program that knows nothing of it: in each process that
// links this, before main.
#include "process_group/gpus.hpp"

namespace {

[[maybe_unused]] const ddp::testing::Gpus& the_gpus = ddp::testing::gpus();

}  // namespace
