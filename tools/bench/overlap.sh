#!/usr/bin/env bash
# Measures how much of a training step is communication that backward does not hide: multi-layer perceptrons on two
# ranks with one compute thread each, the LibTorch adapter against Python's DistributedDataParallel on Gloo. Exposed is a
# step with averaging minus one without (no_sync) after which the ranks meet in a barrier, in the same process. Writes
# its section of docs/benchmarks.md.
#
#   tools/bench/overlap.sh [--rounds N] [--quick] [--build DIR] [--docs DIR]
#
#   --rounds N         fresh processes of each contestant; medians over rounds are shown (default 11: single
#                      runs differ by more than what is measured)
#   --quick            one round of a small net, to see whether all works; docs go to DIR of --build
#   --build DIR        where ddp is built, with LibTorch (default build)
#   --docs DIR         where the file goes (default docs)
#
# Needs tools/install-deps.sh --interop, two cores that nothing else uses, and about 2 minutes a round.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,15s/^# \{0,1\}//p' "$here/overlap.sh"; }
rounds=11 build=build docs= quick=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=(--quick); rounds=1; shift; continue ;;
        -h | --help) usage; exit ;;
        --rounds | --build | --docs) ;;
        *) echo "overlap.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "overlap.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
rows=$build/overlap
[ ${#quick[@]} -eq 0 ] || rows+=/quick  # beside what a whole run measured
[ -n "$docs" ] || { docs=docs; [ ${#quick[@]} -eq 0 ] || docs=$rows; }

for program in ddp-launch ddp-torch-overlap; do
    [ -x "$build/bin/$program" ] || {
        echo "overlap.sh: $build/bin/$program is missing; build ddp with DDP_WITH_TORCH=ON first, or say --build DIR" >&2
        exit 2
    }
done
python=/usr/bin/python3  # whose torch is the LibTorch that ddp is built with
"$python" -c 'import torch.distributed' 2>/dev/null || {
    echo "overlap.sh: $python has no PyTorch; tools/install-deps.sh --interop installs it" >&2
    exit 2
}

mkdir -p "$rows" "$docs"
# Without the paths of this host.
command="tools/bench/overlap.sh --rounds $rounds${quick[*]:+ --quick}"
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
"$python" "$here/overlap/run.py" --bin "$build/bin" --out "$rows/rows.jsonl" --rounds "$rounds" --command "$command" \
    "${quick[@]}"
"$python" "$here/overlap/report.py" "$rows/rows.jsonl" "$docs"
