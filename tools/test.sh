#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests.
#
#   tools/test.sh [--interop] [--preset default|asan|tsan] [ctest arguments...]
#
# --interop installs the peers (PyTorch, Open MPI, MPICH) too; without them their tests are skipped, or fail when
# DDP_REQUIRE_INTEROP=1.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=default
install=()
while [ $# -gt 0 ]; do
    case $1 in
        --interop) install=(--interop); shift ;;
        --preset)
            [ $# -ge 2 ] || { echo "test.sh: --preset needs a name" >&2; exit 2; }
            preset=$2; shift 2 ;;
        *) break ;;
    esac
done

tools/install-deps.sh "${install[@]}"
cmake --preset "$preset" -DDDP_WARNINGS_AS_ERRORS=ON
cmake --build --preset "$preset"
ctest --preset "$preset" --no-tests=error -j2 "$@"
