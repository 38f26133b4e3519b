#!/usr/bin/env bash
# Builds the tests of the LibTorch adapter against the PyTorch of a Python environment, runs them on 1 to 4 ranks, and
# writes its section of docs/benchmarks.md.
#
#   tools/install-deps.sh --torch DIR && tools/bench/newest_torch.sh DIR
#
# Needs a built ddp in build/ and about two minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

case ${1:-} in
    "" | -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
python=$1/bin/python
[ -x "$python" ] || { echo "newest_torch.sh: $python is missing; tools/install-deps.sh --torch $1 makes it" >&2; exit 2; }
. tools/bench/newest_torch_flags.sh
newest_torch_flags "$python" build
version=$("$python" -c 'import torch; print(torch.__version__)')
out=build/newest_torch
mkdir -p "$out"

objects=()
for test in backward data_parallel gradients join logical_ranks sync_batch_norm tensors unused_parameters; do
    objects+=("$out/$test.o")
    g++ -std=c++20 -O1 -c -Itests "${compile_flags[@]}" -Wall -Wextra -Werror "tests/torch/${test}_test.cpp" -o "$out/$test.o"
done
g++ "${objects[@]}" "${link_flags[@]}" -lgtest_main -lgmock -lgtest -lspdlog -lfmt -o "$out/torch_test"

failed=0
rows=()
for ranks in 1 2 3 4; do
    OMP_NUM_THREADS=1 build/bin/ddp-launch --nproc_per_node="$ranks" -- "$out/torch_test" > "$out/$ranks.log" 2>&1 || failed=1
    passed=$(grep -c '\[       OK' "$out/$ranks.log" || true)
    bad=$(grep -c '^\[  FAILED  \].*ms)' "$out/$ranks.log" || true)
    rows+=("| $ranks | $passed | $bad |")
    echo "newest_torch.sh: $ranks ranks: $passed passed, $bad failed"
done
printf '%s\n' "## The LibTorch adapter with the newest PyTorch" "" \
    "$(date +%F): \`tools/bench/newest_torch.sh\`, PyTorch $version of the Python package, $(g++ -dumpfullversion | sed 's/^/GCC /'). Tests of all ranks together." \
    "" "| ranks | passed | failed |" "|---|---|---|" "${rows[@]}" |
    PYTHONPATH=tools/bench PYTHONDONTWRITEBYTECODE=1 python3 -c '
import sys
from reporting import write_section
write_section("docs/benchmarks.md", "newest_torch", sys.stdin.read().rstrip("\n").split("\n"))'
exit $failed
