#!/usr/bin/env bash
# example_test.sh RANKS DDP_LAUNCH PROGRAM: the program, which trains on digits, learns them on GPUs that are stand-ins, and all
# ranks end with the same weights.
set -euo pipefail
ranks=$1 launch=$2 program=$3
device=()
[[ $program == *09_cuda_digits ]] || device=(--device cuda --epochs 8)
said=$("$launch" "--nproc-per-node=$ranks" "$program" "${device[@]}")
echo "$said"
[ "$(wc -l <<<"$said")" = "$ranks" ]
[ "$(sed 's/.* weights //' <<<"$said" | sort -u | wc -l)" = 1 ]
if [[ $program == *09_cuda_digits ]]; then
    # A step as a graph: the same weights.
    graphs=$("$launch" "--nproc-per-node=$ranks" "$program" --graph 2>&1)
    [ "$(grep ' weights ' <<<"$graphs" | sort)" = "$(sort <<<"$said")" ]
    read -r launched _ steps _ <<<"$(grep "steps were a graph's" <<<"$graphs")"
    [ "$launched" = $((steps - 1)) ] && [ "$launched" -gt 100 ]
fi
awk '{ if ($6 + 0 < 0.95) exit 1 }' <<<"$said"
