#!/usr/bin/env bash
# single_file_test.sh CASE DDP_LAUNCH: the launcher is one file that runs on any Debian 12.
#
#   NeedsTheCLibraryAlone   what it asks the loader for
#   RunsInABareDebian       in a root made by debootstrap (root only; downloads about 30 MB)
set -euo pipefail
case_name=$1 launcher=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

NeedsTheCLibraryAlone() {
    local needed newest
    needed=$(readelf -d "$launcher" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    [ -n "$needed" ] || fail "readelf shows no needed library"
    for library in $needed; do
        case $library in
            libc.so.6 | libm.so.6 | ld-linux-*.so.*) ;;
            *) fail "it needs $library" ;;
        esac
    done
    newest=$(readelf -V "$launcher" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    [ "$(printf '%s\n' GLIBC_2.36 "$newest" | sort -V | tail -n 1)" = GLIBC_2.36 ] ||
        fail "it needs $newest; Debian 12 has 2.36"
}

RunsInABareDebian() {
    local root=$work/root
    [ "$(id -u)" = 0 ] || { echo "skipped: debootstrap needs root"; exit 77; }
    command -v debootstrap >/dev/null || { echo "skipped: debootstrap is not installed"; exit 77; }
    debootstrap --variant=minbase bookworm "$root" >"$work/log" 2>&1 ||
        fail "debootstrap: $(tail -n 5 "$work/log")"
    for library in boost spdlog fmt; do
        [ -z "$(find "$root" -name "*$library*.so*")" ] || fail "the root has $library, and proves nothing"
    done
    cp "$launcher" "$root/ddp-launch"
    chroot "$root" /ddp-launch --nproc-per-node=2 sh -c 'echo "rank $RANK of $WORLD_SIZE"' >"$work/out" ||
        fail "exit code $?"
    [ "$(sort "$work/out")" = "$(printf 'rank 0 of 2\nrank 1 of 2')" ] || fail "it printed: $(cat "$work/out")"
}

"$case_name"
