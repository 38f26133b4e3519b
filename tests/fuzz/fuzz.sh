#!/usr/bin/env bash
# fuzz.sh [SECONDS [NAME...]]: what reads bytes of others, under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer:
# each fuzzer of this folder, or those named, for so many seconds (default 60; 0: only built; checkpoint_files three times as
# long), as many at a time as there are processors.
# Exit code 77: clang has no libFuzzer here. After a failure it names the folder with the input that did harm.
# DDP_FUZZ_FOLDER keeps the programs, and does not build them again while no source is newer.
set -euo pipefail
seconds=${1:-60}
[ $# -gt 0 ] && shift
at_once=$(nproc)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
all=(channel checkpoint_files control_page error_file host_link job_description link option_values region_contents region_header store_client store_server)
names=("${@:-${all[@]}}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
built=${DDP_FUZZ_FOLDER:-$work/built}
mkdir -p "$built"

flags=(-std=c++20 -O1 -g1 -w -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all
    -I"$root" -I"$root/include" -I"$root/runtime" -I"$root/tests")
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$work/probe.cpp"
clang++ "${flags[@]}" -fsanitize=fuzzer "$work/probe.cpp" -o "$work/probe" 2>/dev/null || { echo "skipped: no libFuzzer"; exit 77; }
compiler=(clang++)
if command -v ccache >/dev/null; then compiler=(env CCACHE_NOHASHDIR=1 ccache clang++); fi

is_built() {
    for name in "${all[@]}"; do
        [ -x "$built/$name" ] || return 1
        [ -z "$(find "$root/include" "$root/runtime" "$root/launcher" "$here" -newer "$built/$name" -name '*.[ch]pp' -print -quit)" ] || return 1
    done
}

# A library of all that any of them may need: what one does not, its program leaves out. A folder's sources are compiled as one.
build() {
    local sources folders
    mapfile -t folders < <(find "$root"/runtime/{base,contract,store,tensor,checkpoint/formats,backends/shm} -type d)
    # Checkpoints without the groups that share them.
    for name in crc durable_file files manifest staging state_dict; do sources+=("$root/runtime/checkpoint/$name.cpp"); done
    for name in backend call_header reduction/reduce reduction/reduce_portable; do sources+=("$root/runtime/backends/$name.cpp"); done
    for name in agent/attempt/progress_watch channel/channel console/line_prefix hosts/start/job_description hosts/inquiries/hang_inquiry hosts/inquiries/slow_inquiry hosts/job_token hosts/membership/rank_table hosts/messages/hello hosts/messages/messages hosts/messages/rows_message hosts/messages/sighting_bytes hosts/messages/silent_message hosts/messages/stacks_message hosts/messages/timeline_message hosts/tls_session options/did_you_mean options/endpoint options/option_table options/option_values options/split_arguments report/failure report/failure_report verdict/hang_judge verdict/hang_news verdict/network_loss verdict/process_use verdict/rank_state verdict/slow_news verdict/usual_times verdict/verdict_text verdict/waited_call; do
        sources+=("$root/launcher/$name.cpp")
    done
    mkdir "$work/objects" "$work/fuzzers"
    for folder in "${folders[@]}"; do
        unit=${folder#"$root"/}
        unit=$work/${unit//\//_}.cpp
        find "$folder" -maxdepth 1 -name '*.cpp' ! -name '*_cuda.cpp' -printf '#include "%p"\n' | sort >"$unit"
        sources+=("$unit")
    done
    # One command a line.
    {
        for source in "${sources[@]}"; do
            object=${source#"$root"/}
            printf '%q ' "${compiler[@]}" "${flags[@]}" -c "$source" -o "$work/objects/${object//\//_}.o"
            echo
        done
        for name in "${all[@]}" seeds; do
            printf '%q ' "${compiler[@]}" "${flags[@]}" -c "$here/$name.cpp" -o "$work/fuzzers/$name.o"
            echo
        done
    } | xargs -P "$at_once" -d '\n' -n 1 bash -c
    ar rcs "$work/objects/all.a" "$work"/objects/*.o
    for name in "${all[@]}"; do
        clang++ "${flags[@]}" -fsanitize=fuzzer "$work/fuzzers/$name.o" "$work/fuzzers/seeds.o" "$work/objects/all.a" -pthread \
            -o "$built/$name"
    done
}

# A store's client makes room for a value that a server announces, up to the 64 MiB of a request. Files come in four formats.
fuzz() {
    local name=$1 folder=$work/$1 time=$seconds room=96
    if [ "$name" = checkpoint_files ]; then time=$((3 * seconds)) room=64; fi
    mkdir -p "$folder/corpus" "$folder/tmp" "$found/$name"
    if TMPDIR="$folder/tmp" DDP_FUZZ_FIXTURES="$root/tests/checkpoint/fixtures" DDP_FUZZ_SEEDS="$folder/corpus" DDP_LOG_LEVEL=off "$built/$name" -max_total_time="$time" \
        -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb="$room" -max_len=65536 -print_final_stats=1 -artifact_prefix="$found/$name/" \
        "$folder/corpus" >"$folder/log" 2>&1; then
        rmdir "$found/$name"
        echo "$name: $(grep -m1 number_of_executed_units "$folder/log" | tr -dc 0-9) inputs in $time s, none did harm"
    else
        tail -60 "$folder/log"
        rmdir "$found/$name" 2>/dev/null || echo "fuzz.sh: what $name did not survive is in $found/$name" >&2
        touch "$work/failed"
    fi
}

is_built || build
[ "$seconds" != 0 ] || exit 0
found=$(mktemp -d "${TMPDIR:-/tmp}/ddp-fuzz-XXXXXX")  # inputs that do harm; stays when there are any
for name in "${names[@]}"; do
    [ -x "$built/$name" ] || { echo "fuzz.sh: there is no fuzzer $name, but ${all[*]}" >&2; exit 2; }
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
    fuzz "$name" &
done
wait
rmdir "$found" 2>/dev/null || true
[ ! -e "$work/failed" ]
