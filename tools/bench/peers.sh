#!/usr/bin/env bash
# Measures ddp-bench against Open MPI, MPICH, Gloo and, where they are installed, PyTorch and the newest Intel MPI,
# Open MPI, MPICH and oneCCL: all on this host, one after the other in fresh processes, in rounds. Writes the section of
# docs/benchmarks.md for the maker of this host's processor, and its chart; the other scripts here write the other sections.
#
#   tools/bench/peers.sh [--peers DIR] [--only PATTERN] [--rounds N] [--quick] [--build DIR] [--docs DIR]
#       [--limit SECONDS] [--lock FILE]
#   tools/bench/peers.sh --against OLD_BUILD [--rounds N] [--build DIR] [--limit SECONDS] [--lock FILE]
#
#   --against DIR      another build of ddp, with bin/ddp-launch and bin/ddp-bench, instead of the peers: prints both builds'
#                      medians of the quick rows, their ratio, and whether that lies inside the spread of the old one against
#                      itself; exit code 1 when this build is slower than that. Writes no docs
#   --peers DIR        also the peers of the Python package index that tools/install-deps.sh --peers DIR has put there
#   --only PATTERN     measures only rows whose group's name has the regular expression, such as "all_reduce 2 ", and takes
#                      the others from the last run in the folder of --build
#   --rounds N         how often everything runs; medians over rounds are shown (default 5; with --against 15)
#   --quick            one round of a few sizes, to see whether all works; docs go to DIR of --build
#   --build DIR        where ddp is built, with bin/ddp-launch and bin/ddp-bench (default build)
#   --docs DIR         where the two files go (default docs)
#   --limit SECONDS    of one run; one that takes longer is counted and left out (default 60)
#   --lock FILE        locked during each run, for hosts where other jobs take the same lock
#
# The peers: tools/install-deps.sh --interop. How calls are timed: tools/bench/method.hpp.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tools/bench

usage() { sed -n '2,23s/^# \{0,1\}//p' "$here/peers.sh"; }
rounds= build=build docs= limit=60 lock= against= peers= only= quick=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=(--quick); rounds=1; shift; continue ;;
        -h | --help) usage; exit ;;
        --rounds | --build | --docs | --limit | --lock | --against | --peers | --only) ;;
        *) echo "peers.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "peers.sh: $1 needs a value" >&2; exit 2; }
    declare "${1#--}=$2"
    shift 2
done
drivers=$build/peers
[ -n "$docs" ] || { docs=docs; [ ${#quick[@]} -eq 0 ] || docs=$drivers; }

for folder in "$build" ${against:+"$against"}; do
    for program in ddp-launch ddp-bench; do
        [ -x "$folder/bin/$program" ] || {
            echo "peers.sh: $folder/bin/$program is missing; build ddp there first, or say another folder" >&2
            exit 2
        }
    done
done
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
if [ -n "$against" ]; then
    mkdir -p "$drivers"
    g++ -std=c++20 -O2 -w -Itools "$here/peers/placement.cpp" -o "$drivers/placement_bench"
    exec python3 "$here/peers/against.py" --new "$build" --old "$against" --drivers "$drivers" \
        --rounds "${rounds:-15}" --limit "$limit" --lock "$lock"
fi
rounds=${rounds:-5}
missing=()
for package in libopenmpi-dev openmpi-bin libmpich-dev mpich libgloo-dev; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] || {
    echo "peers.sh: missing: ${missing[*]}; tools/install-deps.sh --interop installs them" >&2
    exit 2
}

mkdir -p "$drivers" "$docs"
# build_driver NAME COMPILER SOURCE [LIBRARIES...]
build_driver() {
    local name=$1 compiler=$2 source=$3
    shift 3
    "$compiler" -std=c++20 -O2 -w -Itools "$here/peers/$source" -o "$drivers/${name}_bench" "$@"
}
build_driver openmpi mpicxx.openmpi mpi_bench.cpp
build_driver mpich mpicxx.mpich mpi_bench.cpp
build_driver gloo g++ gloo_bench.cpp -lgloo -lpthread
build_driver placement g++ placement.cpp
if [ -n "$peers" ]; then
    [ -d "$peers" ] || { echo "peers.sh: $peers is missing; tools/install-deps.sh --peers $peers makes it" >&2; exit 2; }
    peers=$(cd "$peers" && pwd)
    # build_wheel_driver FOLDER SOURCE [LIBRARIES...]
    build_wheel_driver() {
        local root=$peers/$1 source=$2 name=$1
        shift 2
        [ -x "$root/bin/python" ] || { echo "peers.sh: $root is not there, and not measured" >&2; return; }
        build_driver "$name" g++ "$source" -I"$root/include" "$@" -L"$root/lib" -Wl,-rpath,"$root/lib" -lmpi
    }
    for name in intel-mpi open-mpi mpich; do build_wheel_driver "$name" mpi_bench.cpp; done
    # Of its two libraries the static one is whole, but for VTune's hooks, to which nobody listens.
    oneccl=$peers/oneccl/lib/ccl/cpu/lib/libccl.a
    if [ -f "$oneccl" ]; then
        nm -u "$oneccl" 2>/dev/null | grep -o '__itt_[a-z_]*_ptr__3_0' | sort -u | sed 's/.*/void *&;/' >"$drivers/no_vtune.c"
        gcc -c "$drivers/no_vtune.c" -o "$drivers/no_vtune.o"
        build_wheel_driver oneccl oneccl_bench.cpp "$drivers/no_vtune.o" "$oneccl" -L"$peers/oneccl/lib" -lhwloc -l:libintlc.so.5
    fi
fi
torch=
for python in /usr/bin/python3 python3; do
    if "$python" -c 'import torch.distributed' 2>/dev/null; then
        torch=$python
        break
    fi
done

# Without the paths of this host.
command="tools/bench/peers.sh${peers:+ --peers DIR}${only:+ --only '$only'} --rounds $rounds${quick[*]:+ --quick}"
python3 "$here/peers/run.py" --bin "$build/bin" --drivers "$drivers" --out "$drivers/rows.jsonl" \
    --rounds "$rounds" --limit "$limit" --lock "$lock" --torch "$torch" --peers "$peers" --only "$only" --command "$command" "${quick[@]}"
python3 "$here/peers/report.py" "$drivers/rows.jsonl" "$docs"
