#!/usr/bin/env bash
# gpu_check_on_stand_ins_test.sh SOURCE_DIR STAND_INS BROKEN_NCCL: gpu-check.sh's checks run and pass with the programs over
# stand-ins of the folder, some fail with an NCCL that lacks a function, and what was found gets into no page of results.
set -euo pipefail
source=$1 folder=$2 broken=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
results=$work/results.jsonl
fail() { echo "FAILED: $*" >&2; cat "$work/out" >&2; exit 1; }
status_of() { "$folder/gpu-check.sh" run --output "$work/results.md" "$@" >"$work/out" 2>&1 && echo 0 || echo $?; }
count() { grep -c "\"result\": \"$1\"" "$results" || true; }

# What fails is seen as such.
for check in "ddp-bench all_reduce, 2 ranks" "--graph, 2 ranks" "processes on the GPU"; do
    [ "$(DDP_NCCL_LIBRARY=$broken status_of --on-stand-ins --only "$check")" = 1 ] || fail "$check: is content with a broken NCCL"
    [ "$(count failed)" = 1 ] && grep -q 'has no ncclAllReduce' "$work/out" || fail "$check: does not say why"
done

# The programs are no bundle's.
[ "$(status_of)" = 2 ] || fail "takes stand-ins for a bundle"

unset DDP_NCCL_LIBRARY
[ "$(status_of --on-stand-ins)" = 0 ] || fail "a check does not pass"
cat "$work/out"
all=$(wc -l <"$results")
[ "$all" -ge 39 ] || fail "has $all checks"
[ "$(count "not judged")" = 6 ] || fail "judges other checks than those of speed"
[ "$(count "not on stand-ins")" = 5 ] || fail "leaves out other checks than those of LibTorch, racecheck and initcheck"
[ "$(count passed)" = $((all - 11)) ] || fail "a check did not pass"
[ "$(grep -c '"card": "stand-in GPU"' "$results")" = "$all" ] || fail "does not say that there is no card"

! python3 "$source/tools/gpu_results.py" "$results" "$work/page.md" 2>"$work/out" && [ ! -e "$work/page.md" ] &&
    grep -q 'is of stand-ins' "$work/out" || fail "takes what stand-ins did for a GPU's results"
