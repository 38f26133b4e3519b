#!/usr/bin/env bash
# Measures what a flood of garbage to a job's own port costs the job: the time of 02_all_reduce beside it, over that beside
# the same flood to the port of another, idle job, so that what the flood takes of the host is in both. In turns, each time
# a fresh job.
#
#   tools/bench/flood.sh [--rounds N] [--build DIR] [--rate N] [--user UID]
#
#   --rounds N     how often each runs; medians are shown (default 25)
#   --build DIR    where ddp is built, with bin/ddp-launch and bin/examples (default build)
#   --rate N       connections a second; 0: as many as one thread makes (default 0)
#   --user UID     who floods (default 65534; another than one's own takes root)
#
# Exit code 1 when the ratio is above 1.1. Needs about a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,13s/^# \{0,1\}//p' "$here/flood.sh"; }
rounds=25 build=build rate=0 user=65534
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --rounds | --build | --rate | --user) ;;
        *) echo "flood.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "flood.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
for program in ddp-launch examples/02_all_reduce; do
    [ -x "$build/bin/$program" ] || {
        echo "flood.sh: $build/bin/$program is missing; build ddp first, or say --build DIR" >&2
        exit 2
    }
done
drivers=$build/flood
mkdir -p "$drivers"
g++ -std=c++20 -O2 -w "$here/start/timer.cpp" -o "$drivers/timer"
g++ -std=c++20 -O2 -w "$here/flood/flood.cpp" -o "$drivers/flood"
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/flood/run.py" --bin "$build/bin" --drivers "$drivers" --rounds "$rounds" --rate "$rate" --user "$user"
