#!/usr/bin/env bash
# Measures how much of a training step is communication that backward does not hide: multi-layer perceptrons on two
# ranks with one compute thread each, the LibTorch adapter against Python's DistributedDataParallel on Gloo. Exposed is a
# step with averaging minus one without (no_sync) after which the ranks meet in a barrier, in the same process. Writes
# its section of docs/benchmarks.md.
#
#   tools/bench/overlap.sh [--torch DIR] [--rounds N] [--quick] [--build DIR] [--docs DIR]
#
#   --torch DIR        with the newest PyTorch and its LibTorch, which tools/install-deps.sh --torch DIR has put there,
#                      instead of Debian's, whose matrix products take three times as long and hide communication; the
#                      page has a section for each
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

usage() { sed -n '2,18s/^# \{0,1\}//p' "$here/overlap.sh"; }
rounds=11 build=build docs= torch= quick=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=(--quick); rounds=1; shift; continue ;;
        -h | --help) usage; exit ;;
        --rounds | --build | --docs | --torch) ;;
        *) echo "overlap.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "overlap.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
rows=$build/overlap
[ ${#quick[@]} -eq 0 ] || rows+=/quick  # beside what a whole run measured
[ -n "$docs" ] || { docs=docs; [ ${#quick[@]} -eq 0 ] || docs=$rows; }

needed=(ddp-launch)
[ -n "$torch" ] || needed+=(ddp-torch-overlap)
for program in "${needed[@]}"; do
    [ -x "$build/bin/$program" ] || {
        echo "overlap.sh: $build/bin/$program is missing; build ddp first (without --torch with DDP_WITH_TORCH=ON), or say --build DIR" >&2
        exit 2
    }
done
python=/usr/bin/python3 programs=$build/bin install=--interop # whose torch is the LibTorch that ddp is built with
[ -z "$torch" ] || python=$torch/bin/python rows+=/newest programs=$rows install="--torch $torch"
"$python" -c 'import torch.distributed' 2>/dev/null || {
    echo "overlap.sh: $python has no PyTorch; tools/install-deps.sh $install installs it" >&2
    exit 2
}

mkdir -p "$rows" "$docs"
if [ -n "$torch" ]; then
    . "$here/newest_torch_flags.sh"
    newest_torch_flags "$python" "$build"
    g++ -std=c++20 -O2 -w "${compile_flags[@]}" "$here/overlap/torch_overlap.cpp" "${link_flags[@]}" \
        -o "$programs/ddp-torch-overlap"
fi
# Without the paths of this host.
command="tools/bench/overlap.sh${torch:+ --torch DIR} --rounds $rounds${quick[*]:+ --quick}"
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
"$python" "$here/overlap/run.py" --bin "$build/bin" --programs "$programs" --out "$rows/rows.jsonl" --rounds "$rounds" \
    --command "$command" ${torch:+--newest} "${quick[@]}"
"$python" "$here/overlap/report.py" "$rows/rows.jsonl" "$docs"
