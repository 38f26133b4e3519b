#!/usr/bin/env bash
# Runs clang-tidy, with the checks of .clang-tidy, over the sources of include, runtime, launcher and examples; prints each
# finding once, and fails when there is one.
#
#   tools/tidy.sh [--all] [--build DIR]
#
#   --all        all sources; else those that commits of the last seven days have changed
#   --build DIR  where compile_commands.json is (default build)
#
# It takes about 10 s a target of the build. clang-tidy: tools/install-deps.sh --interop.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,10s/^# \{0,1\}//p' "$PWD/tools/tidy.sh"; }
build=build all=
while [ $# -gt 0 ]; do
    case $1 in
        --all) all=1; shift ;;
        --build)
            [ $# -ge 2 ] || { echo "tidy.sh: --build needs a folder" >&2; exit 2; }
            build=$2; shift 2 ;;
        -h | --help) usage; exit ;;
        *) echo "tidy.sh: unknown option $1; --help lists the options" >&2; exit 2 ;;
    esac
done
command -v clang-tidy >/dev/null || { echo "tidy.sh: there is no clang-tidy; tools/install-deps.sh --interop installs it" >&2; exit 2; }
[ -f "$build/compile_commands.json" ] || { echo "tidy.sh: $build/compile_commands.json is missing; configure first, or say --build DIR" >&2; exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
folders=(include runtime launcher examples)
if [ -n "$all" ]; then
    names=$(find "${folders[@]}" -name '*.cpp')
else
    names=$(git log --since='7 days ago' --name-only --diff-filter=d --format= -- "${folders[@]}") ||
        { echo "tidy.sh: git cannot tell what has changed; use --all" >&2; exit 2; }
fi
{ grep '\.cpp$' <<<"$names" || true; } | sed "s|^|$PWD/|" | python3 -B tools/tidy_units.py "$build" "$scratch" >"$scratch/units"
count=$(wc -l <"$scratch/sources")
if [ "$count" -eq 0 ]; then
    [ -z "$all" ] || { echo "tidy.sh: $build builds none of the sources" >&2; exit 2; }
    echo "tidy.sh: no source has changed"
    exit
fi

# Ends with 1 where something does not compile; more is a clang-tidy that crashed, on which xargs gives up.
run() {
    clang-tidy -p "$scratch" --config-file=.clang-tidy --quiet "$@" 2>/dev/null || [ $? -eq 1 ] || exit 255
}
# A clang-tidy that cannot run finds nothing: it must find what is wrong here.
echo 'struct lower_case {};' >"$scratch/canary.cpp"
clang-tidy --quiet --config="$(cat .clang-tidy)" "$scratch/canary.cpp" -- -std=c++20 2>/dev/null | grep -q readability-identifier-naming ||
    { echo "tidy.sh: clang-tidy does not find what it should, with .clang-tidy" >&2; exit 2; }
export -f run
export scratch
status=0
xargs -P"$(nproc)" -n1 bash -c 'run "$@"' tidy.sh <"$scratch/units" >"$scratch/output" || status=$?
# What does not compile is the compiler's to say; but a source that was not read was not checked.
if grep -E 'file not found|fatal error' "$scratch/output" >&2 || [ $status -ne 0 ]; then
    echo "tidy.sh: clang-tidy could not read all sources" >&2
    exit 2
fi
findings=$(grep -E "^$PWD/[^ ]+: (warning|error): " "$scratch/output" | grep -v -e 'clang-diagnostic-error' -e '/Unity/' | sort -u || true)
[ -z "$findings" ] || printf '%s\n' "$findings"
found=$(grep -c . <<<"$findings" || true)
echo "tidy.sh: $found findings in $count sources"
[ "$found" -eq 0 ]
