#!/usr/bin/env bash
# gpu_check_test.sh SOURCE_DIR: gpu-check.sh run on machines that stand-ins describe: without a GPU, with one on which all
# goes well, and with one on which something fails.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/out" >&2; exit 1; }
stand_in() { printf '#!/bin/bash\n%s\n' "$2" >"$1"; chmod +x "$1"; }

mkdir -p "$work/bundle/bin" "$work/bundle/torch" "$work/path"
real_python=$(command -v python3)
cp "$1/tools/gpu-check.sh" "$work/bundle/"
export PATH=$work/path:$PATH DDP_NCCL_LIBRARY=$work/libnccl.so.2
run() { "$work/bundle/gpu-check.sh" run --output "$work/results.md" "$@" >"$work/out" 2>&1; }
status_of() { run "$@" && echo 0 || echo $?; }
row() { grep -F "| $1" "$work/results.md" || fail "no row $1"; }

stand_in "$work/path/nvidia-smi" 'echo "NVIDIA-SMI has failed"; exit 9'
[ "$(status_of)" = 3 ] || fail "is content without a GPU"
row "03_train_digits --device cuda |" | grep -q '| not run | no GPU' || fail "does not say why nothing ran"
! grep -q 'passed' "$work/results.md" || fail "something passed without a GPU"

stand_in "$work/path/nvidia-smi" '[[ $* != *compute-apps* ]] || { echo 11; echo 12; exit; }; echo "A card, 600.1, 80000 MiB"'
stand_in "$work/path/python3" 'case "$*" in
    *"torch_curve.py compare"*) echo "largest relative difference 1e-9 (3, 1)" ;;
    *torch*) echo "PyTorch 9" ;;
    *) exec '"$real_python"' "$@" ;;
esac'
stand_in "$work/path/g++" 'while [ $# -gt 0 ]; do
    [ "$1" != -o ] || { printf "#!/bin/bash\\necho 5.0 1 1 1000 900\\n" >"$2"; chmod +x "$2"; }
    shift
done'
stand_in "$work/path/compute-sanitizer" '[ "$2" != racecheck ] || { echo "========= RACECHECK SUMMARY: 0 hazards displayed"; exit; }
echo "========= ERROR SUMMARY: 0 errors"'
for program in cuda_device_test cuda_group_test cuda_ranks_test; do stand_in "$work/bundle/bin/$program" 'echo "[  PASSED  ] 7 tests."'; done
digits='echo "rank 0 of 1: accuracy 0.9777 weights 00"
[[ $* != *" --checkpoint "* ]] || touch "${!#}/state"'
stand_in "$work/bundle/bin/03_train_digits" "$digits"
stand_in "$work/bundle/bin/09_cuda_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"; echo "9 of 10 steps were a graph'"'"'s" >&2'
stand_in "$work/bundle/bin/04_data_parallel" 'echo "Outside: input size [10, 5] output_size [10, 2]"'
stand_in "$work/bundle/bin/05_ddp_tutorial" 'echo "Outside: input size [30, 5] output_size [30, 2]"'
stand_in "$work/bundle/bin/06_move_tensors" 'echo "256 MiB 1 2"'
stand_in "$work/bundle/bin/07_two_devices" 'echo "step 500 loss 0.0410"'
stand_in "$work/bundle/bin/ddp-bench" '[[ $* != *"--iters 100000 "* && $* != *"--iters 1000000 "* ]] || exec sleep 20
echo "     1048576        262144   float32         sum    -1      12.500       0.2     6.6        0.000       0"'
stand_in "$work/bundle/bin/ddp-gpu-cost" 'echo "{\"nccl\": \"2.28.9\"}"; echo "{\"over_us\": 2.50, \"ours_returns_us\": 7.20, \"raw_returns_us\": 4.60, \"over_returns_us\": 1.25}"; echo "{\"over_ordered_returns_us\": 1.75}"; echo "{\"share\": 0.910}"; echo "{\"group_ms\": 300}"; echo "{\"split_ms\": 4.${DDP_NCCL_SHARE:-0}, \"split_mib\": -8.5}"'
stand_in "$work/bundle/bin/ddp-launch" 'while [[ $1 == --?* ]]; do shift; done
[ "$1 $2" != "-- bash" ] || { echo "ddp::PeerError: rank 1 ended while this rank was in all_reduce" >&2; exit 137; }
[ "$1" != -- ] || shift
[ "${1##*/}" != 03_train_digits ] || { for r in 0 1; do echo "rank $r of 2: accuracy 0.8 weights ab${DIFFER:+$r}"; done; exit; }
exec "$@"'
[ "$(status_of)" = 0 ] || fail "finds something wrong where all is well"
row "tests: the device API" | grep -q '| passed | 7 tests |' || fail "does not count tests"
row "ddp-bench all_reduce, one rank" | grep -q '1 MiB in 12.500 us' || fail "does not show the time"
row "from call to kernel" | grep -q '| passed | 2.50 us |' || fail "does not judge the calls"
row "LibTorch: losses" | grep -q '| passed | at most 1e-9 (3, 1) |' || fail "does not compare losses"
row "LibTorch: a step" | grep -q '| ddp 5.0 ms, 1000 MiB; PyTorch, views, ' || fail "does not show LibTorch's figures"
row "a call returns, two ranks" | grep -q "| passed | 7.20 us, NCCL's 4.60 |" || fail "does not show what a call takes"
row "a group that shares" | grep -q '| passed | its own 4.0 ms, -8.5 MiB, shared 4.1 ms, -8.5 MiB |' || fail "does not show what a group costs"
row "processes on the GPU" | grep -q '| passed | 2 processes |' || fail "does not count processes"
grep -q 'A card, 600.1' "$work/results.md" || fail "does not name the card"

stand_in "$work/bundle/bin/ddp-gpu-cost" 'echo "{\"nccl\": \"2.28.9\"}"; echo "{\"over_us\": 7.50, \"ours_returns_us\": 7.20, \"raw_returns_us\": 4.60, \"over_returns_us\": 1.25}"; echo "{\"over_ordered_returns_us\": 1.75}"; echo "{\"share\": 0.910}"; echo "{\"group_ms\": 300}"; echo "{\"split_ms\": 4.${DDP_NCCL_SHARE:-0}, \"split_mib\": -8.5}"'
stand_in "$work/bundle/bin/cuda_group_test" 'echo "[  FAILED  ] A.B"; exit 1'
stand_in "$work/bundle/bin/cuda_device_test" 'echo "[  PASSED  ] 0 tests."'
stand_in "$work/bundle/bin/09_cuda_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"; echo "0 of 10 steps were a graph'"'"'s" >&2'
stand_in "$work/bundle/bin/03_train_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"; exit 134'
stand_in "$work/bundle/bin/07_two_devices" 'echo "step 500 loss 4.5616"'
[ "$(DIFFER=1 status_of)" = 1 ] || fail "is content with failures"
row "07_two_devices" | grep -q '| failed | it printed something else' || fail "takes any output"
row "tests: the device API" | grep -q '| failed | it printed something else' || fail "takes no test for a test that passed"
row "09_cuda_digits --graph |" | grep -q '| failed | it printed something else' || fail "takes steps that were no graph for graphs"
row "03_train_digits --device cuda, from a checkpoint" | grep -q '| failed | exit code 134' || fail "takes a program that crashes in the end"
stand_in "$work/bundle/bin/07_two_devices" 'echo "step 500 loss 0.0410"'
stand_in "$work/bundle/bin/09_cuda_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"; echo "9 of 10 steps were a graph'"'"'s" >&2; exit 134'
run --only "09_cuda_digits --graph" && fail "takes a program that crashes in the end"
row "09_cuda_digits --graph |" | grep -q '| failed | exit code 134: 9 of 10' || fail "does not say how it ended"
stand_in "$work/bundle/bin/09_cuda_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"; echo "9 of 10 steps were a graph'"'"'s" >&2'
stand_in "$work/bundle/bin/03_train_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"'
run --only "from a checkpoint" && fail "takes a run without a checkpoint for one that goes on from it"
stand_in "$work/bundle/bin/03_train_digits" "$digits"
stand_in "$work/bundle/bin/cuda_device_test" 'echo "[  PASSED  ] 7 tests."'
DIFFER=1 run || true
row "03_train_digits --device cuda, 2 ranks" | grep -q '| failed |' || fail "takes different weights for the same"
row "from call to kernel" | grep -q '| missed | 7.50 us |' || fail "does not miss"
row "tests: group" | grep -q '| failed | exit code 1: .*A.B' || fail "does not say what failed"

# A call that failed, whose caller is NCCL, or the library.
failed_call() {
    printf '%s\n' "========= COMPUTE-SANITIZER" "========= Program hit cudaErrorNoKernelImageForDevice (error 209)" \
        "=========     Saved host backtrace up to driver entry point at error" "=========         Host Frame:  [0x1] in libcuda.so.1" \
        "=========         Host Frame: f [0x1] in $1" \
        "=========         Host Frame: g [0x2] in libc.so.6" "========= ERROR SUMMARY: 1 error" >"$work/sanitized"
}
stand_in "$work/path/compute-sanitizer" "cat $work/sanitized"
stand_in "$work/bundle/bin/cuda_group_test" 'echo "[  PASSED  ] 7 tests."'
failed_call libnccl.so.2
run || true
row "compute-sanitizer, cuda_group_test" | grep -q '| passed | ERRORS: 0, and 1 calls' || fail "holds NCCL's questions against it"
failed_call cuda_group_test
run || true
row "compute-sanitizer, cuda_group_test" | grep -q '| failed | exit code 1: ERRORS: 1' || fail "takes a failed call for NCCL's"

rm "$work/bundle/bin/09_cuda_digits" "$work/path/compute-sanitizer"
stand_in "$work/bundle/bin/cuda_group_test" 'echo "[  PASSED  ] 7 tests."'
stand_in "$work/bundle/bin/ddp-gpu-cost" 'echo "{\"nccl\": \"2.28.9\"}"; echo "{\"over_us\": 2, \"ours_returns_us\": 7.20, \"raw_returns_us\": 4.60, \"over_returns_us\": 1}"; echo "{\"over_ordered_returns_us\": 1}"; echo "{\"share\": 0.9}"; echo "{\"group_ms\": 300}"; echo "{\"split_ms\": 4.${DDP_NCCL_SHARE:-0}, \"split_mib\": -8.5}"'
[ "$(status_of)" = 3 ] || fail "is content although a program is missing"
row "09_cuda_digits" | grep -q '| not run | there is no 09_cuda_digits' || fail "does not say what is missing"
grep -A 1 -F "| 09_cuda_digits |" "$work/results.md" | tail -n 1 | grep -q 'accuracy of 09_cuda_digits | not run' || fail "judges another program's accuracy"

# A part, the checks of a name, a limit; what is left of a run.
rm -f "$work"/results*
run --only "09_cuda_digits --graph" || true
[ "$(wc -l <"$work/results.jsonl")" = 2 ] || fail "runs what it was not asked for"
grep -q '"check": "09_cuda_digits --graph", "result": "not run"' "$work/results.jsonl" || fail "has other rows"
stand_in "$work/bundle/bin/09_cuda_digits" 'echo "rank 0 of 1: accuracy 0.9777 weights 00"'
for k in 1 2 3; do
    run --part $k/3 || true
    cat "$work/results.jsonl" >>"$work/all.jsonl"
done
run || true
cut -d, -f1 "$work/all.jsonl" | cmp - <(cut -d, -f1 "$work/results.jsonl") || fail "three parts are not the whole"
grep -q '"unit": "us", "wanted": "at most 5 us", "seconds": [0-9]*, "command": "bin/ddp-gpu-cost", "card": "A card", "driver": "600.1"' \
    "$work/results.jsonl" || fail "does not say what a figure is: $(cat "$work/results.jsonl")"
[ "$(tar -tzf "$work/results-logs.tar.gz" | grep -c '\.log$')" -gt 9 ] || fail "keeps no log"
[ "$(status_of --part 4/3)" = 2 ] && grep -q 'needs K/N' "$work/out" || fail "takes a part that there is not"
[ "$(status_of --only "no such check")" = 2 ] || fail "is content with no check"
stand_in "$work/bundle/bin/07_two_devices" 'sleep 5; echo "step 500 loss 0.0410"'
[ "$(status_of --only 07_two --limit 1)" = 1 ] && grep -q 'timed out' "$work/out" || fail "knows no limit"

# The page takes rows of one run after those of another, and a check once.
merge() { python3 "$1/tools/gpu_results.py" "$2" "$work/page.md"; }
merge "$1" "$work/all.jsonl" && cp "$work/page.md" "$work/once.md"
merge "$1" "$work/all.jsonl" && cmp "$work/page.md" "$work/once.md" || fail "takes a check twice"
sed 's/"result": "[^"]*"/"result": "not run"/' "$work/all.jsonl" >"$work/not_run.jsonl"
merge "$1" "$work/not_run.jsonl" && cmp "$work/page.md" "$work/once.md" || fail "takes a check that was not run for its result"
sed 's/"card": "A card"/"card": "Another"/; s/"date": "[^"]*"/"date": "2099-01-01"/' "$work/all.jsonl" >"$work/other.jsonl"
merge "$1" "$work/other.jsonl"
[ "$(grep -c '^## ' "$work/page.md")" = 2 ] && [[ $(grep '^## ' "$work/page.md") == "## Another"* ]] || fail "mixes cards"
grep -q '^| from call to kernel, over the raw NCCL call | passed | 2 us | at most 5 us |$' "$work/page.md" || fail "loses a figure"
echo '{"check": 1' >"$work/broken.jsonl"
! merge "$1" "$work/broken.jsonl" 2>"$work/out" && grep -q 'broken.jsonl:1: no JSON' "$work/out" || fail "takes what is no row"
cp "$1/docs/gpu-results.md" "$work/page.md"
merge "$1" "$work/other.jsonl"
[ "$(sed -n '/NVIDIA H200/,$p' "$work/page.md")" = "$(sed -n '/NVIDIA H200/,$p' "$1/docs/gpu-results.md")" ] || fail "changes what was found before"
