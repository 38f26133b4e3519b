#!/usr/bin/env bash
# Whether programs that were linked with an earlier libddp.so run with this one: compares what it exports, with the types behind it,
# with packaging/abi/libddp.so.N.abi.xz, N being its soname's. Needs abidw and abidiff of abigail-tools.
#
#   tools/abi.sh check LIBRARY   ends with 1, and says what differs, for an incompatible change without a new soname, and where what
#                                is new, or the soname, is not in the file yet
#   tools/abi.sh store LIBRARY   writes that file: with what is new, or for a new soname; refuses an incompatible change
#       --unreleased             though it is incompatible: nobody has that soname yet
#
# LIBRARY is built by g++ with -O0 -g, as the test Package.AddSubdirectoryBuildsSharedWithoutLauncherAndBoost does.
# DDP_ABI_FOLDER: another folder than packaging/abi.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${DDP_ABI_FOLDER:-$root/packaging/abi}

refuse() { echo "abi.sh: $*; see --help" >&2; exit 2; }
case ${1:-} in
    check | store) command=$1; shift ;;
    --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit ;;
    *) refuse "check or store is wanted" ;;
esac
library='' unreleased=''
for word in "$@"; do
    case $word in
        --unreleased) unreleased=1 ;;
        -*) refuse "unknown option $word" ;;
        *) [ -z "$library" ] || refuse "one library is wanted"; library=$word ;;
    esac
done
[ -f "$library" ] || refuse "there is no library '$library'"
for program in abidw abidiff; do command -v "$program" >/dev/null || refuse "no $program: apt-get install abigail-tools"; done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Public headers alone: what else there is may change.
abidw --headers-dir "$root/include" --drop-private-types --exported-interfaces-only --drop-undefined-syms --no-corpus-path \
    --no-comp-dir-path --no-show-locs --no-elf-needed --no-architecture --out-file "$work/now.abi" "$library"
soname=$(sed -n "1s/.* soname='\([^']*\)'.*/\1/p" "$work/now.abi")
grep -q "<class-decl name='Shape'" "$work/now.abi" || refuse "$library has no types: build it with -g"
stored=$folder/$soname.abi.xz
if [ -f "$stored" ]; then
    xz -dc "$stored" >"$work/stored.abi"
    # An added enumerator is harmless, and not shown.
    abidiff --no-added-syms "$work/stored.abi" "$work/now.abi" >"$work/differences" && differs='' || differs=1
    if [ -n "$differs" ] && [ -z "$unreleased" ]; then
        cat "$work/differences"
        echo "abi.sh: programs that were linked with $soname may not run with this one: undo that, or raise SOVERSION in" \
            "runtime/CMakeLists.txt, and DDP_N in libddp.map, and call tools/abi.sh store" >&2
        exit 1
    fi
    if [ "$command" = check ] && ! abidiff "$work/stored.abi" "$work/now.abi" >"$work/differences"; then
        cat "$work/differences"
        echo "abi.sh: that is new, and not in $stored: call tools/abi.sh store" >&2
        exit 1
    fi
elif [ "$command" = check ]; then
    echo "abi.sh: $stored is missing: soname $soname is new; call tools/abi.sh store" >&2
    exit 1
fi
if [ "$command" = store ]; then
    mkdir -p "$folder"
    xz -9c "$work/now.abi" >"$stored"
    echo "$stored"
fi
