#!/usr/bin/env bash
# Measures the samplers and data loaders of ddp and of PyTorch, alternately, in fresh processes: time and memory of a
# shuffled epoch of 10^7 samples over two ranks, and samples/s of small batches. Writes its section of docs/benchmarks.md.
#
#   tools/bench/data.sh [--rounds N] [--build DIR] [--docs DIR] [--python PYTHON]
#
#   --rounds N       how often everything runs; medians over rounds are shown (default 5)
#   --build DIR      where ddp is built, with bin/ddp-data-speed (default build)
#   --docs DIR       where the file goes (default docs)
#   --python PYTHON  one that has torch (default /usr/bin/python3, with Debian's python3-torch)
#
# Needs PyTorch (tools/install-deps.sh --interop) and about two minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,12s/^# \{0,1\}//p' "$here/data.sh"; }
rounds=5 build=build docs=docs python=/usr/bin/python3
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --rounds | --build | --docs | --python) ;;
        *) echo "data.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "data.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
[ -x "$build/bin/ddp-data-speed" ] || {
    echo "data.sh: $build/bin/ddp-data-speed is missing; build ddp first, or say --build DIR" >&2
    exit 2
}
"$python" -c 'import torch' 2>/dev/null || {
    echo "data.sh: $python has no torch; tools/install-deps.sh --interop installs it, or say --python" >&2
    exit 2
}
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/data/run.py" --bin "$build/bin" --rounds "$rounds" --docs "$docs" --python "$python"
