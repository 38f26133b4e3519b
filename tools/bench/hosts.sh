#!/usr/bin/env bash
# Measures all_reduce between two hosts, which are network namespaces of this machine, joined by a virtual cable: backend
# hierarchical, over UCX and over Gloo, against backend gloo, Gloo's own algorithm and bare sockets, in interleaved rounds; the
# bytes on the cable; and one that is limited to 1 Gbit/s. Writes the section of docs/benchmarks.md for the maker of this
# machine's processor. Needs libgloo-dev, libucx-dev, iproute2, and root or user namespaces.
#
#   tools/bench/hosts.sh [--rounds N] [--build DIR] [--docs DIR]
#
#   --rounds N         how often everything runs; medians over rounds are shown (default 5)
#   --build DIR        where ddp is built, with bin/ddp-launch and bin/ddp-bench (default build)
#   --docs DIR         where the page is (default docs)
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() { sed -n '2,11s/^# \{0,1\}//p' tools/bench/hosts.sh; }
rounds=5 build=build docs=docs
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --rounds | --build | --docs) ;;
        *) echo "hosts.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "hosts.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
for program in ddp-launch ddp-bench; do
    [ -x "$build/bin/$program" ] || { echo "hosts.sh: $build/bin/$program is missing; build it first, or say --build DIR" >&2; exit 2; }
done
drivers=$build/hosts
mkdir -p "$drivers"
g++ -std=c++20 -O2 tools/bench/hosts/duplex.cpp -o "$drivers/duplex"
g++ -std=c++20 -O2 -w -Itools tools/bench/peers/gloo_bench.cpp -o "$drivers/gloo_bench" -lgloo -lpthread
export PYTHONPATH=tools/bench PYTHONDONTWRITEBYTECODE=1
# All of it in namespaces that end with the command; the hosts' names lie in a /run/netns of its own.
as_root=()
[ "$EUID" = 0 ] || as_root=(--map-root-user)
exec unshare "${as_root[@]}" --mount --net python3 tools/bench/hosts/measure.py \
    --bin "$build/bin" --drivers "$drivers" --docs "$docs" --rounds "$rounds"
