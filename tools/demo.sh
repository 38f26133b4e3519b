#!/usr/bin/env bash
# From a fresh clone to a training curve: installs what is missing, builds ddp-launch and one example, which trains
# the digits network on two ranks. Further arguments go to the training program, such as --epochs 10.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/install-deps.sh
# In a folder of its own what this example needs, not optimized: in under half of the time.
build=build-demo
if [ -f build/build.ninja ]; then
    build=build
else
    cmake -G Ninja -B $build -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_TOOLS=OFF \
        -DDDP_WITH_CUDA=OFF -DDDP_WITH_GLOO=OFF -DDDP_WITH_TORCH=OFF >/dev/null
fi
cmake --build $build -j2 --target ddp-launch 03_train_digits
set -x
exec $build/bin/ddp-launch --nproc_per_node=2 $build/bin/examples/03_train_digits "$@"
