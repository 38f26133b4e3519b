#!/usr/bin/env bash
# From a fresh clone to a training curve: installs what is missing, builds ddp-launch and one example, which trains
# the digits network on two ranks. Further arguments go to the training program, such as --epochs 10.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/install-deps.sh
# As test.sh does, which then compiles none of it again.
[ -f build/build.ninja ] || cmake --preset default -DDDP_WARNINGS_AS_ERRORS=ON >/dev/null
cmake --build build -j2 --target ddp-launch 03_train_digits
set -x
exec build/bin/ddp-launch --nproc_per_node=2 build/bin/examples/03_train_digits "$@"
