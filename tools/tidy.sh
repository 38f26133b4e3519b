#!/usr/bin/env bash
# Runs clang-tidy, with the checks of .clang-tidy, over the sources of include, runtime, launcher and examples; prints each
# finding once, and fails when there is one.
#
#   tools/tidy.sh [--all] [--build DIR]
#
#   --all        all sources; else those that commits of the last seven days have changed
#   --build DIR  where compile_commands.json is (default build)
#
# It takes about 3 s a source. clang-tidy: tools/install-deps.sh --interop.
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

folders=(include runtime launcher examples)
if [ -n "$all" ]; then
    mapfile -t sources < <(find "${folders[@]}" -name '*.cpp' | sort)
else
    mapfile -t sources < <(git log --since='7 days ago' --name-only --diff-filter=d --format= -- "${folders[@]}" |
        grep '\.cpp$' | sort -u | while read -r file; do [ ! -f "$file" ] || echo "$file"; done)
fi
# Sources that this build has no command for (other processors, absent backends) are left out.
commands=$(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json")
chosen=()
for file in "${sources[@]}"; do
    if grep -qxF "$PWD/$file" <<<"$commands"; then chosen+=("$file"); fi
done
if [ ${#chosen[@]} -eq 0 ]; then echo "tidy.sh: no source has changed"; exit; fi

output=$(mktemp)
trap 'rm -f "$output"' EXIT
# What does not compile is the compiler's to say: clang 14 does not know all of C++20.
printf '%s\n' "${chosen[@]}" | xargs -P2 -n4 clang-tidy -p "$build" --quiet \
    --extra-arg=-include"$PWD/tools/tidy/source_location.hpp" >"$output" 2>/dev/null || true
findings=$(grep -E "^$PWD/[^ ]+: (warning|error): " "$output" | grep -v 'clang-diagnostic-' | sort -u || true)
[ -z "$findings" ] || printf '%s\n' "$findings"
count=$(grep -c . <<<"$findings" || true)
echo "tidy.sh: $count findings in ${#chosen[@]} sources"
[ "$count" -eq 0 ]
