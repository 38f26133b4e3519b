#!/usr/bin/env bash
# Measures what checkpoints cost: how fast a save writes against `dd conv=fsync` on the same disk in the same run, and how
# much longer a training step takes while one is saved in the background. Writes its section of docs/benchmarks.md.
#
#   tools/bench/checkpoint.sh [--rounds N] [--mib N] [--every N] [--dir DIR] [--build DIR] [--docs DIR]
#
#   --rounds N     how often everything is timed, in turn; medians are shown (default 9)
#   --mib N        size of what is saved, a multiple of 64 (default 1024)
#   --every N      steps between two saves in the background (default 20)
#   --dir DIR      where checkpoints go, on a disk; it is left as it was (default: in the folder of --build)
#   --build DIR    where ddp is built, with bin/ddp-checkpoint-cost (default build)
#   --docs DIR     where the file goes (default docs)
#
# Needs two cores and a disk that nothing else uses, twice --mib of space there, and about five minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,14s/^# \{0,1\}//p' "$here/checkpoint.sh"; }
rounds=9 mib=1024 every=20 dir= build=build docs=docs
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --rounds | --mib | --every | --dir | --build | --docs) ;;
        *) echo "checkpoint.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "checkpoint.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
[ -n "$dir" ] || dir=$build
for program in ddp-checkpoint-cost ddp-launch; do
    [ -x "$build/bin/$program" ] || {
        echo "checkpoint.sh: $build/bin/$program is missing; build ddp first, or say --build DIR" >&2
        exit 2
    }
done
[ -d "$dir" ] || { echo "checkpoint.sh: there is no folder $dir; name one on a disk with --dir" >&2; exit 2; }
case $(stat -f -c %T "$dir") in
    tmpfs | ramfs)
        echo "checkpoint.sh: $dir is in memory, not on a disk; name a folder on one with --dir" >&2
        exit 2 ;;
esac
work=$(mktemp -d "$dir/checkpoint-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
python3 "$here/checkpoint/run.py" --bin "$build/bin" --work "$work" --rounds "$rounds" --mib "$mib" --every "$every" \
    --docs "$docs"
