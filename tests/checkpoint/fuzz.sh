#!/usr/bin/env bash
# fuzz.sh [SECONDS]: the readers of files under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer (default 60 s).
# Exit code 77: clang has no libFuzzer here. After a failure it names the folder with the input that did harm.
set -euo pipefail
seconds=${1:-60}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags=(-std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
    -I"$root/include" -I"$root/runtime")
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$work/probe.cpp"
clang++ "${flags[@]}" "$work/probe.cpp" -o "$work/probe" 2>/dev/null || { echo "skipped: no libFuzzer"; exit 77; }

sources=("$here/fuzz_readers.cpp" "$root/runtime/base/error.cpp")
for name in convert_elements device/device device/device_api device/device_api_absent dtype tensor_view; do
    sources+=("$root/runtime/tensor/$name.cpp")
done
for name in crc manifest formats/pickle formats/pickle_stack formats/safetensors state_dict formats/torch_file formats/zip; do
    sources+=("$root/runtime/checkpoint/$name.cpp")
done
# What the readers' neighbours need, of which nothing runs here.
for name in durable_file files formats/safetensors_file staging; do sources+=("$root/runtime/checkpoint/$name.cpp"); done
for name in base/allocate base/log base/random base/unique_fd contract/control_page; do sources+=("$root/runtime/$name.cpp"); done
printf '%s\n' "${sources[@]}" | (cd "$work" && xargs -P "$(nproc)" -n 1 clang++ "${flags[@]}" -c)
clang++ "${flags[@]}" "$work"/*.o -o "$work/fuzz"

mkdir "$work/corpus"
for fixture in "$here"/fixtures/*.pth; do
    { printf '\3'; cat "$fixture"; } >"$work/corpus/$(basename "$fixture")"
    { printf '\2'; python3 -c 'import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
sys.stdout.buffer.write(z.read(next(n for n in z.namelist() if n.endswith("data.pkl"))))' "$fixture" 2>/dev/null || true; } \
        >"$work/corpus/$(basename "$fixture").pkl"
done
printf '\0\x40\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}          12345678' >"$work/corpus/safetensors"
printf '\1ddp checkpoint 1\nepoch 3\nsamples 640\nstep 1075\nfile checkpoint-12.safetensors\nbytes 37352\nchecksum 8a9136aa\n' \
    >"$work/corpus/manifest"
found=$(mktemp -d "${TMPDIR:-/tmp}/ddp-fuzz-XXXXXX")  # the input that does harm; stays when there is one
if "$work/fuzz" -max_total_time="$seconds" -rss_limit_mb=512 -malloc_limit_mb=64 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="$found/" "$work/corpus" >"$work/log" 2>&1; then
    rm -r "$found"
    tail -15 "$work/log"
else
    status=$?
    cat "$work/log"
    rmdir "$found" 2>/dev/null || echo "fuzz.sh: what the readers did not survive is in $found" >&2
    exit $status
fi
