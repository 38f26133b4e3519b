#!/usr/bin/env bash
# no_cuda_library_test.sh PROGRAM...: no program loads a library of CUDA or NCCL at its start, nor
# looks for the driver before it is asked for a GPU.
set -euo pipefail
fail() { echo "FAILED: $*" >&2; exit 1; }

for program in "$@"; do
    libraries=$(ldd "$program")
    grep -q 'libc\.so' <<<"$libraries" || fail "ldd shows no library of $program: $libraries"
    ! grep -iE 'cuda|nccl|nvidia' <<<"$libraries" || fail "$program is linked with them"
    searched=$(LD_DEBUG=files "$program" --help 2>&1 >/dev/null || true)
    grep -q 'calling init' <<<"$searched" || fail "the loader of $program reports nothing"
    ! grep -iE 'libcuda|libnccl|nvidia' <<<"$searched" || fail "$program looked for them"
done
