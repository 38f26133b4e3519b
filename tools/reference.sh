#!/usr/bin/env bash
# Makes the pages of the project and the reference of its public headers as HTML: build-reference/index.html. Fails for a public name
# without a comment, and for a link that leads nowhere. Needs what tools/install-deps.sh --interop installs: doxygen, python3-markdown.
#
#   tools/reference.sh [--output DIR]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output=$root/build-reference
refuse() { echo "reference.sh: $*; see --help" >&2; exit 2; }
case ${1:-} in
    --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit ;;
    --output) [ $# -eq 2 ] || refuse "--output needs a directory"; mkdir -p "$2"; output=$(cd "$2" && pwd) ;;
    '') ;;
    *) refuse "unknown argument $1" ;;
esac
command -v doxygen >/dev/null || refuse "no doxygen: tools/install-deps.sh --interop installs it"
/usr/bin/python3 -c 'import markdown' 2>/dev/null || refuse "no python3-markdown: tools/install-deps.sh --interop installs it"
mkdir -p "$output"
[ -z "$(ls -A "$output")" ] || [ -f "$output/.made-by-reference" ] || refuse "$output has other files; name an empty folder"
find "$output" -mindepth 1 -delete
touch "$output/.made-by-reference"
version=$(sed -n 's/.*define DDP_VERSION "\(.*\)"/\1/p' "$root/include/ddp/version.hpp")
cd "$root"
{
    cat tools/reference/Doxyfile
    printf '%s\n' "OUTPUT_DIRECTORY = $output" "GENERATE_TAGFILE = $output/reference.tag" "PROJECT_NUMBER = $version"
} | doxygen -
/usr/bin/python3 -B tools/reference/html_pages.py "$root" "$output"
echo "$output/index.html"
