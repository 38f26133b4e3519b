#!/usr/bin/env bash
# Measures small store operations (set, wait, get, add) of many clients at ddp-launch's store, and compares two builds:
# the same client program, one server after the other, in interleaved rounds. Prints medians, their ratio, and the
# spread of the old build against itself, which is what chance alone gives.
#
#   tools/bench/store.sh [--against OLD_BUILD] [--build DIR] [--rounds N] [--clients N] [--operations N]
#
#   --against DIR      a build to compare with, with bin/ddp-launch (default: none)
#   --build DIR        where ddp is built, with bin/ddp-launch and bin/ddp-store-speed (default build)
#   --rounds N         how often each runs (default 15)
#   --clients N        connections that ask at once (default 64)
#   --operations N     of each client in one run, divided by four (default 400)
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() { sed -n '2,13s/^# \{0,1\}//p' tools/bench/store.sh; }
against= build=build rounds=15 clients=64 operations=400
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --against | --build | --rounds | --clients | --operations) ;;
        *) echo "store.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "store.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
for program in "$build/bin/ddp-launch" "$build/bin/ddp-store-speed" ${against:+"$against/bin/ddp-launch"}; do
    [ -x "$program" ] || { echo "store.sh: $program is missing; build it first, or say --build DIR" >&2; exit 2; }
done
exec python3 tools/bench/store/compare.py --build "$build" --against "$against" --rounds "$rounds" \
    --clients "$clients" --operations "$operations"
