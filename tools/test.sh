#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests.
#
#   tools/test.sh [--interop] [--preset default|asan|tsan] [--label-exclude REGEX] [ctest arguments...]
#
# Tests labelled soak take long and are left out; ctest --test-dir build -L soak runs them.
# --interop installs the peers (PyTorch, Open MPI, MPICH) too; without them their tests are skipped, or fail when
# DDP_REQUIRE_INTEROP=1.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=default
install=()
left_out=soak
while [ $# -gt 0 ]; do
    case $1 in
        --interop) install=(--interop); shift ;;
        --preset)
            [ $# -ge 2 ] || { echo "test.sh: --preset needs a name" >&2; exit 2; }
            preset=$2; shift 2 ;;
        --label-exclude)
            [ $# -ge 2 ] || { echo "test.sh: --label-exclude needs a regular expression" >&2; exit 2; }
            left_out="$left_out|$2"; shift 2 ;;
        *) break ;;
    esac
done

[ "$preset" != asan ] || [ ${#install[@]} -gt 0 ] || install=(--asan)
tools/install-deps.sh "${install[@]}"
# A test builds ddp as part of another project, in another folder: what the compiler is given is the same.
export CCACHE_NOHASHDIR=1
cmake --preset "$preset" -DDDP_WARNINGS_AS_ERRORS=ON
cmake --build --preset "$preset"
build=build
[ "$preset" = default ] || build=build-$preset
# Tests wait for most of their time, so that there are three a core; less so under ThreadSanitizer.
tests_a_core=3
[ "$preset" != tsan ] || tests_a_core=2
# Not by the preset: what that leaves out, and what is left out here, must both match to count.
status=0
ctest --test-dir "$build" --output-on-failure --label-exclude "$left_out" --no-tests=error -j"$((tests_a_core * $(nproc)))" "$@" || status=$?

# No test leaves a process behind: one that goes on takes the time of all that come after it.
running() { find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname "$PWD/$build/*" 2>/dev/null || true; }
for _ in 1 2 3 4 5; do
    left=$(running)
    [ -n "$left" ] || exit "$status"
    sleep 1
done
for exe in $left; do
    echo "test.sh: still running after the tests: ${exe//[^0-9]/} $(readlink "$exe")" >&2
done
exit 1
