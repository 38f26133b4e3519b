#!/usr/bin/env bash
# Measures how soon ddp-launch runs a job and how soon the job computes, against a bare loop, Open MPI, MPICH and, where
# it is installed, torchrun: all on this host, alternately, in fresh processes. Writes its section of
# docs/benchmarks.md; the other scripts here write the other sections.
#
#   tools/bench/start.sh [--rounds N] [--quick] [--build DIR] [--docs DIR] [--limit SECONDS]
#   tools/bench/start.sh --against OLD_BUILD [--rounds N] [--build DIR] [--limit SECONDS]
#
#   --against DIR      another build of ddp, with bin/ddp-launch and bin/ddp-first-all-reduce, instead of the peers: prints both
#                      builds' medians, their ratio, and whether that lies inside the spread of the old one against
#                      itself; exit code 1 when this build is slower than that. Writes no docs
#   --rounds N         how often everything runs; medians over rounds are shown (default 15)
#   --quick            two rounds, a few repeats and no torchrun, to see whether all works; docs go to DIR of --build
#   --build DIR        where ddp is built, with bin/ddp-launch and bin/ddp-first-all-reduce (default build)
#   --docs DIR         where the file goes (default docs)
#   --limit SECONDS    of one start; one that takes longer is counted and left out (default 10)
#
# The peers: tools/install-deps.sh --interop. Needs about 4 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,18s/^# \{0,1\}//p' "$here/start.sh"; }
rounds=15 build=build docs= limit=10 quick=no against=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=yes; rounds=2; shift; continue ;;
        -h | --help) usage; exit ;;
        --rounds | --build | --docs | --limit | --against) ;;
        *) echo "start.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "start.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
drivers=$build/start
[ -n "$docs" ] || { docs=docs; [ $quick = no ] || docs=$drivers; }

for folder in "$build" ${against:+"$against"}; do
    for program in ddp-launch ddp-first-all-reduce; do
        [ -x "$folder/bin/$program" ] || {
            echo "start.sh: $folder/bin/$program is missing; build ddp there first, or say another folder" >&2
            exit 2
        }
    done
done
mkdir -p "$drivers"
# build_driver NAME COMPILER SOURCE
build_driver() { "$2" -std=c++20 -O2 -w -Wl,--as-needed "$here/start/$3" -o "$drivers/$1"; }
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
if [ -n "$against" ]; then
    build_driver timer g++ timer.cpp
    exec python3 "$here/start/against.py" --new "$build" --old "$against" --drivers "$drivers" \
        --rounds "$rounds" --limit "$limit"
fi
for program in mpicxx.openmpi mpirun.openmpi mpicxx.mpich mpiexec.hydra; do
    command -v "$program" >/dev/null || {
        echo "start.sh: $program is missing; tools/install-deps.sh --interop installs it" >&2
        exit 2
    }
done

mkdir -p "$docs"
build_driver timer g++ timer.cpp
build_driver spawn_floor g++ spawn_floor.cpp
build_static_driver() { g++ -std=c++20 -O2 -w -static "$2" "$here/start/meeting_floor.cpp" -o "$drivers/$1"; }
build_static_driver meeting_floor -DPADDING_BYTES=1
room=$(($(stat -Lc %s "$build/bin/ddp-first-all-reduce") - $(stat -c %s "$drivers/meeting_floor")))
[ $room -le 0 ] || build_static_driver meeting_floor -DPADDING_BYTES=$room
build_driver openmpi_first mpicxx.openmpi mpi_first_all_reduce.cpp
build_driver mpich_first mpicxx.mpich mpi_first_all_reduce.cpp
torch=
for python in /usr/bin/python3 python3; do
    [ $quick = no ] || break
    if "$python" -c 'import torch.distributed' 2>/dev/null; then
        torch=$python
        break
    fi
done

# Without the paths of this host.
command="tools/bench/start.sh --rounds $rounds$([ $quick = no ] || echo ' --quick')"
repeats=200
[ $quick = no ] || repeats=10
failed=0
python3 "$here/start/run.py" --bin "$build/bin" --drivers "$drivers" --out "$drivers/rows.jsonl" \
    --rounds "$rounds" --repeats "$repeats" --limit "$limit" --torch "$torch" --command "$command" || failed=1
python3 "$here/start/report.py" "$drivers/rows.jsonl" "$docs"
exit $failed
