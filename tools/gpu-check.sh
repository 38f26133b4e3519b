#!/usr/bin/env bash
# Checks ddp on a machine with an NVIDIA GPU, which needs no package registry, and a compiler for LibTorch alone.
#
#   tools/gpu-check.sh bundle             here, with the toolkit: builds build/gpu-bundle.tar.gz (tests, benchmarks, examples,
#                                         ddp-launch, the libraries that they need, what LibTorch's programs are compiled
#                                         from there, and this script)
#   gpu-check.sh run [options]            there, from the bundle: runs all of it, prints a table and writes gpu-results.md,
#                                         its rows as JSON lines beside it (.jsonl) and what they printed (-logs.tar.gz)
#       --output FILE                     instead of gpu-results.md in the bundle
#       --only TEXT                       the checks whose names contain it
#       --part K/N                        of N parts of about the same time the one from 1 to N
#       --limit SECONDS                   for each check, if it has more
#   tools/gpu-check.sh run --on-stand-ins [options]
#                                         here, without a GPU, after a build with CUDA: the same with programs over stand-ins for
#                                         the CUDA runtime and NCCL, to see that the checks themselves work. No speed is judged;
#                                         what needs a card or its compiler is listed, and neither passed nor failed. Writes
#                                         build/gpu-stand-ins/gpu-results.md, which merge refuses
#   tools/gpu-check.sh merge FILE.jsonl   here: takes its rows into docs/gpu-results.md
#
# `run` takes at most 8 minutes, all parts together at most 25, on stand-ins about one. NCCL is found by DDP_NCCL_LIBRARY, on the
# loader's path, in the CUDA toolkit or in a Python package. Exit code: 0 when every check ran and passed, 1 when one failed, 3 when
# one could not run, 2 for a wrong command line or a bundle that is too large.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here most_bytes=$((40 * 1024 * 1024)) most_seconds=480 most_seconds_of_all=1500

usage() { sed -n '2,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { echo "gpu-check: $*" >&2; exit 2; }

# --- bundle -----------------------------------------------------------------------------------------------------------

# Those of glibc belong to the machine; all others travel.
is_of_the_system() { [[ $1 =~ ^(ld-linux.*|lib(c|m|dl|rt|pthread)\.so.*)$ ]]; }

copy_libraries_of() {
    ldd "$1" | awk '$2 == "=>" && $3 ~ "^/" {print $1, $3}' | while read -r name file; do
        is_of_the_system "$name" || [ -e "$2/$name" ] || cp -L "$file" "$2/$name"
    done
}

make_bundle() {
    set -e
    cd "$here/.."
    local bundle=build/gpu-bundle
    cmake --preset default -DDDP_WITH_CUDA=ON >/dev/null
    cmake --build build --target ddp_gpu_bundle
    rm -rf "$bundle"
    mkdir -p "$bundle/bin" "$bundle/lib"
    while read -r program; do
        strip -o "$bundle/bin/$(basename "$program")" "$program"
        copy_libraries_of "$program" "$bundle/lib"
    done <build/gpu-bundle.txt
    cp -r build/bin/examples/data "$bundle/bin/data"
    cp tools/gpu-check.sh "$bundle/"
    # For LibTorch, which is compiled with there: PyTorch is where the GPU is.
    mkdir "$bundle/torch"
    cp -r include tests/torch/{train_curve.cpp,torch_curve.py} tools/bench/overlap/torch_overlap.{cpp,py} "$bundle/torch/"
    strip -g -o "$bundle/torch/libddp.a" build/runtime/libddp.a
    cp "$(sed -n 's/^cudart //p' build/gpu-bundle-needs.txt)" "$bundle/torch/"
    {
        echo "ddp $(git describe --always --dirty 2>/dev/null || echo "without git")"
        cat build/gpu-bundle-made-of.txt
    } >"$bundle/made-of.txt"
    tar -czf "$bundle.tar.gz" -C build gpu-bundle
    local bytes
    bytes=$(stat -c %s "$bundle.tar.gz")
    [ "$bytes" -le "$most_bytes" ] || die "$bundle.tar.gz has $bytes bytes; $most_bytes may travel"
    echo "$bundle.tar.gz: $((bytes / 1024)) KiB; there: tar -xzf gpu-bundle.tar.gz && gpu-bundle/gpu-check.sh run"
}

# --- run --------------------------------------------------------------------------------------------------------------

rows=()      # of the table, as Markdown
failed=0
left_out=0
listed=0
stand_ins=                                 # the programs and the card are stand-ins
needs=                                     # what the next checks need that no stand-in is
only= part=1 parts=1 limit_of_each=100000  # what the command line asks for
planned= seconds_before=0 seconds_of_all=0  # of the checks' limits, to cut them into parts
skips=                                     # the last check is not asked for

json() {
    local value=${2//[$'\001'-$'\037']/}
    value=${value//\\/\\\\}
    printf '"%s": "%s"' "$1" "${value//\"/\\\"}"
}

add_row() { # CHECK RESULT FIGURE WANTED [UNIT]
    rows+=("| $1 | $2 | $3${5:+ $5} | $4 |")
    {
        printf '{'
        json check "$1"; printf ', '; json result "$2"; printf ', '; json figure "$3"; printf ', '; json unit "${5:-}"
        printf ', '; json wanted "$4"; printf ', "seconds": %d, ' "$took"; json command "$command_line"
        printf ', '; json card "$card"; printf ', '; json driver "$driver"; printf ', '; json nccl "$nccl"
        printf ', '; json ddp "$made_of"; printf ', '; json date "$(date -u +%F)"
        printf '}\n'
    } >>"$lines"
    printf '%-58s %-16s %s\n' "$1" "$2" "$3"
    case $2 in
        passed) ;;
        "not run") left_out=$((left_out + 1)) ;;
        "not judged" | "not on stand-ins") listed=$((listed + 1)) ;;
        *) failed=$((failed + 1)) ;;
    esac
}

# The last figure that a sed expression takes from a log; a dash when there is none.
figure_of() { local found; found=$(sed -nE "$2" "$1" | tail -n 1); echo "${found:-–}"; }

# check NAME WANTED FIGURE SECONDS COMMAND...: FIGURE is a sed expression for the command's output.
check() {
    local name=$1 wanted=$2 figure=$3 limit=$4 left status
    shift 4
    log= took=0 command_line=${*//"$bin"/bin}
    skips=yes
    if [ -n "$planned" ]; then seconds_of_all=$((seconds_of_all + limit)); return; fi
    local own_part=$((seconds_before * parts / seconds_of_all + 1))
    seconds_before=$((seconds_before + limit))
    if [ $own_part -ne "$part" ] || [[ $name != *"$only"* ]]; then return; fi
    skips=
    limit=$((limit < limit_of_each ? limit : limit_of_each))
    if [ -n "$stand_ins" ] && [ -n "$needs" ]; then add_row "$name" "not on stand-ins" "needs $needs" "$wanted"; return; fi
    if [ -n "$obstacle" ]; then add_row "$name" "not run" "$obstacle" "$wanted"; return 1; fi
    if [[ $1 != */* ]] && ! command -v "$1" >/dev/null || [[ $1 == */* && ! -x $1 ]]; then
        add_row "$name" "not run" "there is no $(basename "$1")" "$wanted"
        return 1
    fi
    left=$((most_seconds - SECONDS))
    if [ "$left" -lt 5 ]; then add_row "$name" "not run" "no time was left" "$wanted"; return 1; fi
    log=$logs/$((++number)).log took=$SECONDS
    timeout -k 5 "$((limit < left ? limit : left))" "$@" >"$log" 2>&1
    status=$?
    took=$((SECONDS - took))
    if [ $status -ne 0 ]; then
        local why
        why=$(grep -v '^ *$' "$log" | tail -n 1 | cut -c 1-120 | tr '|' '/')
        [ $status -ne 124 ] || why="timed out"
        add_row "$name" "failed" "exit code $status: $why" "$wanted"
        sed 's/^/    /' "$log" | tail -n 15
        log=
        return 1
    fi
    figure=$(figure_of "$log" "$figure")
    if [ "$figure" = – ]; then add_row "$name" "failed" "it printed something else" "$wanted"; return 1; fi
    add_row "$name" "passed" "$figure" "$wanted"
}

# As check, but of a command that has run: judges a number in its log. at_least or at_most.
judge() { # NAME FIGURE-EXPRESSION at_least|at_most NUMBER UNIT
    local name=$1 figure
    [ -z "$skips" ] || return 0
    [ -n "$log" ] && [ -z "$obstacle" ] || { add_row "$name" "not run" "${obstacle:-see above}" "${3/_/ } $4 $5"; return; }
    figure=$(figure_of "$log" "$2")
    local met=missed
    awk -v a="$figure" -v b="$4" -v how="$3" \
        'BEGIN {exit !(a + 0 == a && (how == "at_least" ? a >= b : a <= b))}' && met=passed
    add_row "$name" "$met" "$figure" "${3/_/ } $4 $5" "$5"
}

# As judge, of a speed, which a stand-in has not: that there is a figure is all that is looked at there.
judge_speed() {
    if [ -z "$stand_ins" ] || [ -n "$skips" ] || [ -z "$log" ] || [ -n "$obstacle" ]; then judge "$@"; return; fi
    local figure
    figure=$(figure_of "$log" "$2")
    if [[ ! $figure =~ ^-?[0-9]+([.][0-9]+)?$ ]]; then add_row "$1" "failed" "it printed no figure" "${3/_/ } $4 $5"; return; fi
    add_row "$1" "not judged" "$figure" "${3/_/ } $4 $5, not judged on stand-ins" "$5"
}

find_nccl() {
    if [ -n "${DDP_NCCL_LIBRARY:-}" ]; then echo "$DDP_NCCL_LIBRARY"; return; fi
    local file
    file=$(ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2 / {print $NF; exit}')
    [ -n "$file" ] || file=$(ls /usr/local/cuda*/lib*/libnccl.so.2 2>/dev/null | head -n 1)
    [ -n "$file" ] || file=$(python3 -c 'import os, nvidia.nccl as n; print(os.path.join(list(n.__path__)[0], "lib/libnccl.so.2"))' 2>/dev/null)
    [ -n "$file" ] && [ -e "$file" ] && echo "$file"
}

# Two ranks that share the GPU end with the same weights.
same_weights='
"$0/ddp-launch" --oversubscribe-gpu --nproc-per-node=2 "$0/03_train_digits" --device cuda --epochs 3 >"$0/.weights" || exit
cat "$0/.weights"
[ "$(wc -l <"$0/.weights")" = 2 ] && [ "$(sed "s/.* weights //" "$0/.weights" | uniq | wc -l)" = 1 ] &&
    sed -n "1s/.*accuracy \([0-9.]*\).*/the same weights, accuracy \1 after 3 epochs/p" "$0/.weights"'

# Steps as CUDA graphs end with the weights of steps that are not, on so many ranks. $0: the folder of the programs.
as_graphs='
set -o pipefail
ranks=$1
train() { "$0/ddp-launch" --oversubscribe-gpu --nproc-per-node=$ranks -- "$0/09_cuda_digits" "$@" 2>"$0/.said" | sed "s/.* weights //"; }
plain=$(train) && graphs=$(train --graph)
status=$?
cat "$0/.said"
[ $status -eq 0 ] || exit $status
echo "$plain, $graphs"
[ -n "$plain" ] && [ "$plain" = "$graphs" ] && echo "the same weights; $(grep -o "[0-9]* of [0-9]* steps were a graph.*" "$0/.said" | head -n 1)"'

# Three epochs, then a new process that goes on from their checkpoint, end with the weights of six at once.
resume='
set -o pipefail
folder=$(mktemp -d) && trap "rm -rf $folder" EXIT
train() { "$0/03_train_digits" --device cuda "$@" | sed "s/.* weights //"; }
once=$(train --epochs 6) && train --epochs 3 --checkpoint "$folder" && [ -n "$(ls -A "$folder")" ] &&
    again=$(train --epochs 6 --checkpoint "$folder") &&
    echo "$once, $again" && [ -n "$once" ] && [ "$once" = "$again" ] && echo "the same weights"'

# One of two ranks that share the GPU is killed amid the collectives of ddp-bench, or at a barrier between them: the other,
# which takes no SIGTERM that would forestall it, is told each time, and all of it ends at once. Again, until it was amid a
# collective. $0: the folder of the programs.
kill_one='
for try in 1 2 3 4 5; do
    start=$SECONDS
    "$0/ddp-launch" --oversubscribe-gpu --nproc-per-node=2 -- bash -c \
        "[ \$RANK = 0 ] || exec timeout -s KILL 8 \"\$0\" \"\$@\"; trap \"\" TERM; exec \"\$0\" \"\$@\"" \
        "$0/ddp-bench" all_reduce --backend nccl --min-bytes 1M --max-bytes 1M --iters 1000000 --no-check 2>"$0/.killed"
    status=$?
    cat "$0/.killed"
    [ $status -eq 137 ] && grep -Eq "PeerError.*rank 1.*(all_reduce|barrier)" "$0/.killed" || exit 1
    grep -q "PeerError.*rank 1.*all_reduce" "$0/.killed" || continue
    echo "exit code $status after $((SECONDS - start)) s, try $try"
    exit 0
done
exit 1'

# A further group of two ranks, and its first all-reduce: milliseconds and MiB of a rank, without and with DDP_NCCL_SHARE. $0: the
# folder of the programs.
groups='
set -o pipefail
bin=$0
cost() {
    DDP_NCCL_SHARE=$1 "$bin/ddp-launch" --oversubscribe-gpu --nproc-per-node=2 "$bin/ddp-gpu-cost" "${@:2}" |
        sed -nE "s/.*\"split_ms\": ([0-9.]+), \"split_mib\": (-?[0-9.]+).*/\1 ms, \2 MiB/p"
}
own=$(cost 0 "$@") && shared=$(cost 1 "$@") && [ -n "$own" ] && [ -n "$shared" ] && echo "its own $own, shared $shared"'

# As many processes have the GPU as there are ranks, at three looks. $0: the folder of the programs.
contexts='
"$0/ddp-launch" --oversubscribe-gpu --nproc-per-node=2 "$0/ddp-bench" all_reduce --backend nccl --min-bytes 4 --max-bytes 4 \
    --iters 1000000 --no-check >"$0/.bench" 2>&1 &
job=$! most=0 seen=0
for look in $(seq 60); do
    now=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l)
    [ "$now" -le "$most" ] || most=$now
    if [ "$now" -ge 2 ] && [ $((seen += 1)) -eq 3 ]; then break; fi
    kill -0 $job 2>/dev/null || break
    sleep 0.2
done
kill $job
wait
cat "$0/.bench"
echo "$most processes"
[ "$most" = 2 ] && [ $seen -eq 3 ]'

# Two programs of LibTorch, with the PyTorch and the compiler that are here. $0: their folder.
compile_with_torch='
torch=$(python3 -c "import os, torch; print(os.path.dirname(torch.__file__))") || exit
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
make() {
    g++ -std=c++20 -O1 -DDDP_TORCH_HAS_CUDA -I"$0/include" -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
        -isystem "$cuda/include" "$0/$1.cpp" -o "$0/$1" "$0/libddp.a" -L"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -ltorch_cuda \
        -lc10 -lc10_cuda -Wl,--as-needed "$0/libcudart_static.a" -Wl,-rpath,"$torch/lib" -Wl,--unresolved-symbols=ignore-in-shared-libs \
        -pthread -lrt -ldl
}
make train_curve & make torch_overlap && wait $! && python3 -c "import torch; print(\"PyTorch\", torch.__version__)"'

# LibTorch on ddp, and Python: each its DistributedDataParallel, two ranks on one GPU, the losses of 50 steps. $0: the bundle.
losses='
cd "$0/torch" || exit
export PYTHONWARNINGS=ignore
launch() { "$0/bin/ddp-launch" --oversubscribe-gpu --nproc-per-node=2 -- "$@"; }
for type in float32 float64; do
    launch ./train_curve $type cuda >ours || exit
    launch python3 -u torch_curve.py $type cuda >python || exit
    python3 torch_curve.py compare ours python || exit
done'

# A step of 537 M parameters on one rank: milliseconds, MiB of the GPU. $0: the bundle.
torch_steps='
cd "$0/torch" || exit
net="8192 8 512 5"
launch() { "$0/bin/ddp-launch" --nproc-per-node=1 -- "$@"; }
launch ./torch_overlap $net buckets cuda >ours && launch python3 torch_overlap.py $net views cuda >views &&
    launch python3 torch_overlap.py $net copies cuda >copies || exit
show() { awk -v who="$1" "{printf \"%s %.1f ms, %d MiB\", who, \$1, \$4}" "$2"; }
cat ours views copies
echo "$(show ddp ours); $(show "PyTorch, views," views); $(show "PyTorch, copies," copies)"'

# compute-sanitizer on a program, where calls of CUDA that fail are errors, too, but for those that NCCL itself makes: it
# asks for kernels and memory that a card may lack, and takes the error for an answer.
sanitize='
compute-sanitizer --print-limit 0 "$0" >"$0.sanitized" 2>&1
status=$?
cat "$0.sanitized"
[ $status -eq 0 ] && grep -q "ERROR SUMMARY" "$0.sanitized" || exit 1
awk "
    function count(kind) { if (open) { ours++; of[kind]++ } open = 0 }
    /^========= [A-Z]/ && !/COMPUTE-SANITIZER|ERROR SUMMARY/ {
        count(kind); open = 1; failed_call = /Program hit/; kind = substr(\$0, 11)
        gsub(/ due to .* on CUDA API call to /, \" by \", kind)
    }
    open && /Host Frame/ && !/in libcuda[.]so/ { if (failed_call && /in libnccl[.]so/) { asked++; open = 0 } else count(kind) }
    END {
        count(kind)
        for (kind in of) printf \"%d times: %s\n\", of[kind], kind
        printf \"ERRORS: %d, and %d calls of NCCL that failed\n\", ours, asked
        exit ours > 0
    }
" "$0.sanitized"'

run_checks() {
    local accuracy='s/^rank 0 of [0-9]+: accuracy ([0-9.]+).*/\1/p' tests='s/^\[  PASSED  \] ([1-9][0-9]* tests?)\..*/\1/p'
    local row='s/^ +1048576 +[0-9]+ +[a-z0-9]+ +[a-z_]+ +-?[0-9]+ +([0-9.]+) .*/1 MiB in \1 us/p'
    # That ranks share a GPU shows that things work, not how fast.
    local shared=("$bin/ddp-launch" --oversubscribe-gpu)
    # On stand-ins, of what takes long there, so much that it is seen to work; and ddp-launch counts the host's own GPUs.
    local largest=256M quick=() gpus=gpu
    [ -z "$stand_ins" ] || { largest=4M quick=(--quick) gpus=1; }
    export DDP_REQUIRE_GPU=1
    check "tests: the device API and its kernels" "all pass" "$tests" 40 "$bin/cuda_device_test"
    [ -n "$obstacle" ] || obstacle=$no_nccl
    check "tests: group, collectives and reducer, one rank" "all pass" "$tests" 60 "$bin/cuda_group_test"
    check "tests: group with registered memory, one rank" "all pass" "$tests" 60 env DDP_NCCL_REGISTER=1 "$bin/cuda_group_test"
    check "tests: gradients in registered memory, 2 ranks or more" "all pass" "$tests" 50 env DDP_NCCL_REGISTER=1 \
        "$bin/cuda_ranks_test" "--gtest_filter=*Gradients*:*Captured*"
    check "tests: 2 to 4 ranks on one GPU" "all pass" "$tests" 140 "$bin/cuda_ranks_test"
    check "ddp-bench all_reduce, one rank, 4 B to 256 MiB" "no element wrong" "$row" 30 \
        "$bin/ddp-bench" all_reduce --backend nccl --max-bytes $largest
    for ranks in 2 4; do
        check "ddp-bench all_reduce, $ranks ranks on one GPU" "no element wrong" "$row" 30 "${shared[@]}" "--nproc-per-node=$ranks" \
            "$bin/ddp-bench" all_reduce --backend nccl --min-bytes 4 --max-bytes 1M --factor 64 --iters 5
    done
    check "tests: groups that share NCCL's resources, 2 to 4 ranks on one GPU" "all pass" "$tests" 50 env DDP_NCCL_SHARE=1 \
        "$bin/cuda_ranks_test" "--gtest_filter=*RandomPrograms*:*GroupsThatShare*"
    check "two ranks on one GPU, one is killed" "rank 0 is told" 's/^(exit code.*)/\1/p' 60 \
        bash -c "$kill_one" "$bin"
    check "calls and packing (ddp-gpu-cost)" "runs" 's/.*"nccl": "([^"]*)".*/NCCL \1/p' 30 "$bin/ddp-gpu-cost" "${quick[@]}"
    judge_speed "init_process_group, after the context" 's/.*"group_ms": ([0-9.]+).*/\1/p' at_most 5000 ms
    judge_speed "a call returns, over the raw NCCL call" 's/.*"over_returns_us": ([-0-9.]+).*/\1/p' at_most 5 us
    judge_speed "a call returns, over the same calls by hand" 's/.*"over_ordered_returns_us": ([-0-9.]+).*/\1/p' at_most 3 us
    judge_speed "from call to kernel, over the raw NCCL call" 's/.*"over_us": ([-0-9.]+).*/\1/p' at_most 5 us
    judge_speed "pack and scale, of the card's copy bandwidth" 's/.*"share": ([0-9.]+).*/\1/p' at_least 0.85 ""
    # Between them are milliseconds, in which the processor forgets what both need.
    check "a call returns, two ranks on one GPU" "beside NCCL's own" \
        's/.*"ours_returns_us": ([0-9.]+), "raw_returns_us": ([0-9.]+).*/\1 us, NCCL'"'"'s \2/p' 30 \
        "${shared[@]}" --nproc-per-node=2 "$bin/ddp-gpu-cost" "${quick[@]}"
    judge_speed "a call returns, over the raw NCCL call, two ranks" 's/.*"over_returns_us": ([-0-9.]+).*/\1/p' at_most 5 us
    check "a group that shares, two ranks on one GPU" "beside one of its own" \
        's/^(its own .*, shared .*)/\1/p' 30 bash -c "$groups" "$bin" "${quick[@]}"
    check "03_train_digits --device cuda" "0.95 (the CPU's: 0.9778)" "$accuracy" 20 "$bin/03_train_digits" --device cuda
    judge "accuracy of 03_train_digits" "$accuracy" at_least 0.95 ""
    check "09_cuda_digits" "0.95" "$accuracy" 20 "$bin/09_cuda_digits"
    judge "accuracy of 09_cuda_digits" "$accuracy" at_least 0.95 ""
    local graphs=(bash -c "$as_graphs" "$bin")
    [ -x "$bin/09_cuda_digits" ] || graphs=("$bin/09_cuda_digits")  # then check says so
    check "09_cuda_digits --graph" "the same weights" 's/^(the same weights; [1-9].*)/\1/p' 30 "${graphs[@]}" 1
    check "09_cuda_digits --graph, 2 ranks on one GPU" "the same weights" 's/^(the same weights; [1-9].*)/\1/p' 40 "${graphs[@]}" 2
    check "03_train_digits --device cuda, 2 ranks on one GPU" "the same weights" 's/^(the same weights.*)/\1/p' 30 \
        bash -c "$same_weights" "$bin"
    check "03_train_digits --device cuda, from a checkpoint" "the same weights" 's/^(the same weights)/\1/p' 30 bash -c "$resume" "$bin"
    check "04_data_parallel --device cuda" "a batch of 10" 's/^(Outside: input size \[10, 5\] .*)/\1/p' 20 "$bin/04_data_parallel" --device cuda
    check "05_ddp_tutorial --device cuda" "a batch of 30" 's/^(Outside: input size \[30, 5\] .*)/\1/p' 20 \
        "$bin/ddp-launch" "--nproc-per-node=$gpus" "$bin/05_ddp_tutorial" --device cuda
    check "06_move_tensors --device cuda, 256 MiB" "its table" 's/^(256 MiB .*)/\1/p' 20 "$bin/06_move_tensors" --device cuda
    check "07_two_devices --device cuda" "loss 0.0410" 's/^(step 500 loss 0\.041.*)/\1/p' 20 "$bin/07_two_devices" --device cuda
    check "processes on the GPU, two ranks" "one each" 's/^(2 processes)/\1/p' 20 bash -c "$contexts" "$bin"
    needs="LibTorch with CUDA"
    check "LibTorch: compiled with the PyTorch here" "compiles" 's/^(PyTorch .*)/\1/p' 100 bash -c "$compile_with_torch" "$bundle/torch"
    local lost=(bash -c "$losses") steps=(bash -c "$torch_steps")
    [ -x "$bundle/torch/train_curve" ] || lost=("$bundle/torch/train_curve")  # then check says so
    [ -x "$bundle/torch/torch_overlap" ] || steps=("$bundle/torch/torch_overlap")
    check "LibTorch: losses beside Python's DDP, two ranks" "within 1e-5" 's/^largest relative difference (.*)/at most \1/p' 80 \
        "${lost[@]}" "$bundle"
    check "LibTorch: a step of 537 M parameters, memory" "its figures" 's/^(ddp .*)/\1/p' 100 "${steps[@]}" "$bundle"
    needs=
    # Not those whose calls are to fail, nor one that starts the program again, which the sanitizer does not come back from.
    local for_sanitizers="--gtest_filter=-*Petabyte*:*NamesCall*:*KnowsWhere*"
    check "compute-sanitizer, cuda_device_test" "no error" 's/.*(ERROR SUMMARY: .*)/\1/p' 90 \
        compute-sanitizer --error-exitcode 9 "$bin/cuda_device_test" "$for_sanitizers"
    needs="compute-sanitizer itself: what it looks at is done by kernels on a card"
    for tool in racecheck initcheck; do
        check "compute-sanitizer, $tool, cuda_device_test" "no error" 's/.*((RACECHECK|ERROR) SUMMARY: .*)/\1/p' 60 \
            compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/cuda_device_test" "$for_sanitizers"
    done
    needs=
    local sanitizer=(bash -c "$sanitize")
    command -v compute-sanitizer >/dev/null || sanitizer=(compute-sanitizer)  # then check says so
    check "compute-sanitizer, cuda_group_test" "no error but NCCL's" 's/^(ERRORS: 0,.*)/\1/p' 100 \
        "${sanitizer[@]}" "$bin/cuda_group_test"
}

# Of each log no more than its beginning and its end.
keep_logs() {
    local one
    for one in "$logs"/*.log; do
        [ -e "$one" ] || return 0
        [ "$(stat -c %s "$one")" -le 1000000 ] && continue
        { head -c 400000 "$one"; printf '\n[...]\n'; tail -c 400000 "$one"; } >"$one.short" && mv "$one.short" "$one"
    done
    tar -czf "$1" -C "$logs" .
}

run() {
    local output=
    while [ $# -gt 0 ]; do
        case $1 in
            --on-stand-ins) stand_ins=yes; shift; continue ;;
            --output | --only | --part | --limit) [ $# -ge 2 ] || die "$1 needs a value" ;;
            *) die "run: unknown option $1" ;;
        esac
        case $1 in
            --output) output=$2 ;;
            --only) only=$2 ;;
            --part)
                [[ $2 =~ ^([1-9][0-9]?)/([1-9][0-9]?)$ ]] && part=${BASH_REMATCH[1]} parts=${BASH_REMATCH[2]} && [ "$part" -le "$parts" ] ||
                    die "--part needs K/N, such as 1/3, not $2" ;;
            --limit) [[ $2 =~ ^[1-9][0-9]{0,4}$ ]] || die "--limit needs seconds, not $2"; limit_of_each=$2 ;;
        esac
        shift 2
    done
    local bundle=$here kind=bundle
    [ -z "$stand_ins" ] || kind=stand-ins
    export GPU_CHECK_RUN=$$
    [ -d "$here/bin" ] || bundle=$(realpath -m "$here/../build/gpu-$kind")
    if [ -d "$bundle/path" ]; then
        [ -n "$stand_ins" ] || die "the programs of $bundle are over stand-ins: --on-stand-ins"
        export PATH=$bundle/path:$PATH DDP_STAND_IN_GPUS=1
    elif [ -n "$stand_ins" ]; then
        die "there are no stand-ins in $bundle: build ddp with CUDA and with its tests"
    fi
    if [ -z "$output" ]; then
        mkdir -p "$bundle"
        output=$bundle/gpu-results.md
    fi
    bin=$bundle/bin number=0 log= obstacle= no_nccl= lines=${output%.md}.jsonl
    logs=$(mktemp -d)
    : >"$lines"
    trap 'rm -rf "$logs"' EXIT
    local gpu
    gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null) || gpu=
    gpu=${gpu%%$'\n'*}
    [ -n "$gpu" ] || obstacle="no GPU: nvidia-smi finds none"
    IFS=, read -r card driver _ <<<"$gpu"
    driver=${driver# }
    made_of=$(paste -sd ';' "$bundle/made-of.txt" 2>/dev/null || echo "no bundle")
    [ -d "$bin" ] || obstacle="there is no bundle: tools/gpu-check.sh bundle"
    [ -n "$stand_ins" ] || DDP_NCCL_LIBRARY=$(find_nccl)
    if [ -n "${DDP_NCCL_LIBRARY:-}" ]; then
        export DDP_NCCL_LIBRARY
    elif [ -z "$stand_ins" ]; then
        unset DDP_NCCL_LIBRARY
        no_nccl="no libnccl.so.2: set DDP_NCCL_LIBRARY"
    fi
    nccl=$(grep -aoE 'NCCL version [0-9]+\.[0-9]+\.[0-9]+' "${DDP_NCCL_LIBRARY:-/dev/null}" 2>/dev/null | head -n 1 | cut -d ' ' -f 3)
    planned=yes
    run_checks
    planned=
    [ $seconds_of_all -le $most_seconds_of_all ] || die "the checks may take $seconds_of_all s; $most_seconds_of_all are for all"
    run_checks
    [ ${#rows[@]} -gt 0 ] || die "no check is named like '$only' in part $part/$parts"
    {
        echo "# ddp on a GPU"
        echo
        if [ -n "$stand_ins" ]; then
            echo "Written by \`tools/gpu-check.sh run --on-stand-ins\`: of stand-ins, and no result of a GPU."
        else
            echo "Written by \`tools/gpu-check.sh run\` from the bundle that \`tools/gpu-check.sh bundle\` makes."
        fi
        echo
        echo "- GPU, driver, memory: ${gpu:-none, so nothing has been run}"
        echo "- made of: $made_of"
        echo "- date: $(date -u +%F)"
        echo
        echo "| check | result | figure | wanted |"
        echo "|---|---|---|---|"
        printf '%s\n' "${rows[@]}"
    } >"$output"
    keep_logs "${output%.md}-logs.tar.gz"
    echo "$output: $failed failed, $left_out not run${stand_ins:+, $listed not judged or not on stand-ins}, of ${#rows[@]}"
    [ $failed -eq 0 ] || return 1
    [ $left_out -eq 0 ] || return 3
}

case ${1:-} in
    bundle) [ $# -eq 1 ] || die "bundle takes no options"; make_bundle ;;
    run) shift; run "$@" ;;
    merge) [ $# -eq 2 ] || die "merge takes one file"; exec python3 "$here/gpu_results.py" "$2" "$here/../docs/gpu-results.md" ;;
    -h | --help) usage ;;
    *) usage >&2; exit 2 ;;
esac
