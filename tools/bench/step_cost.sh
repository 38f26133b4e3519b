#!/usr/bin/env bash
# Measures what DistributedDataParallel costs a training step of one rank, and what as many logical ranks as ranks cost a
# step of two: instructions by callgrind, which do not depend on what else the host does, and times. Writes its section of
# docs/benchmarks.md.
#
#   tools/bench/step_cost.sh [--rounds N] [--build DIR] [--docs DIR]
#
#   --rounds N     how often each is timed, in turn; medians are shown (default 9)
#   --build DIR    where ddp is built, with bin/ddp-step-cost (default build)
#   --docs DIR     where the file goes (default docs)
#
# Needs valgrind (tools/install-deps.sh --interop) and about three minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,12s/^# \{0,1\}//p' "$here/step_cost.sh"; }
rounds=9 build=build docs=docs
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --rounds | --build | --docs) ;;
        *) echo "step_cost.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "step_cost.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
for program in ddp-step-cost ddp-launch; do
    [ -x "$build/bin/$program" ] || {
        echo "step_cost.sh: $build/bin/$program is missing; build ddp first, or say --build DIR" >&2
        exit 2
    }
done
command -v valgrind >/dev/null || {
    echo "step_cost.sh: valgrind is missing; tools/install-deps.sh --interop installs it" >&2
    exit 2
}
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/step/run.py" --bin "$build/bin" --rounds "$rounds" --docs "$docs"
