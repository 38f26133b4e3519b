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
all=(channel checkpoint_files control_page error_file host_link job_description link option_values region_contents region_header screen_lines store_client store_server)
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

# A library of all that any of them may need: what one does not, its program leaves out. What is read together, as headers take
# most of the time: all sources of a folder, or those that are named.
parts=(
    "runtime/base/*" "runtime/contract/*" "runtime/store/*" "runtime/tensor/*" "runtime/checkpoint/formats/*" "runtime/backends/shm/*"
    "runtime/backends backend call_header"
    "runtime/backends/reduction reduce reduce_portable"
    # Without the groups that share them.
    "runtime/checkpoint crc durable_file files manifest staging state_dict"
    "launcher/agent/attempt progress_watch"
    "launcher/channel channel"
    "launcher/console line_prefix screen_lines"
    "launcher/hosts/start job_description"
    "launcher/hosts/inquiries hang_inquiry slow_inquiry"
    "launcher/hosts job_token tls_session"
    "launcher/hosts/membership rank_table"
    "launcher/hosts/messages hello messages rows_message sighting_bytes silent_message stacks_message timeline_message"
    "launcher/options did_you_mean endpoint option_table option_values split_arguments"
    "launcher/report failure failure_report"
    "launcher/verdict hang_judge hang_news network_loss process_use rank_state slow_news usual_times verdict_text waited_call"
)

# FOLDER NAMES...: the sources as one.
write_unit() {
    local folder=$1 unit=$work/units/${1//\//_}.cpp
    shift
    printf "#include \"$root/$folder/%s.cpp\"\n" "$@" >"$unit"
}

write_units() {
    local part folder names
    for part in "${parts[@]}"; do
        if [[ $part != *'/*' ]]; then
            write_unit $part
            continue
        fi
        while read -r folder; do
            mapfile -t names < <(find "$root/$folder" -maxdepth 1 -name '*.cpp' ! -name '*_cuda.cpp' -printf '%f\n' | sed 's/[.]cpp$//' | sort)
            [ ${#names[@]} -eq 0 ] || write_unit "$folder" "${names[@]}"
        done < <(cd "$root" && find "${part%/\*}" -type d)
    done
}

compile() {  # UNIT OPTIONS...
    printf '%q ' "${compiler[@]}" "${flags[@]}" "${@:2}" -c "$work/units/$1.cpp" -o "$work/objects/$1.o"
    echo
}

build() {
    local part name
    mkdir "$work/units" "$work/objects" "$work/fuzzers"
    write_units
    # One command a line.
    {
        # Arithmetic takes half a minute with it, and is the same whatever the bytes are.
        compile runtime_backends_reduction -fno-sanitize=undefined
        for part in "$work"/units/*; do
            part=$(basename "$part" .cpp)
            [ "$part" = runtime_backends_reduction ] || compile "$part"
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
