#!/usr/bin/env bash
# sources_alone.sh SOURCE_DIR: each source of the product is right by itself. Compiled several together, as they are otherwise,
# one may use what another includes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S "$1" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DDDP_UNITY_BUILD=OFF -DDDP_BUILD_TESTS=OFF >"$work/log" || {
    cat "$work/log" >&2
    exit 1
}
python3 - "$work/compile_commands.json" <<'PYTHON' >"$work/commands"
import json, re, sys
for one in json.load(open(sys.argv[1])):
    if re.search(r"/(runtime|launcher|tools)/.*\.cpp$", one["file"]):
        command = re.sub(r" -o \S+", "", one["command"]).replace(" -c ", " -fsyntax-only ")
        print(f"cd '{one['directory']}' && {command}")
PYTHON
[ "$(wc -l <"$work/commands")" -gt 200 ] || { echo "there are only $(wc -l <"$work/commands") sources" >&2; exit 1; }
tr '\n' '\0' <"$work/commands" | xargs -0 -n 1 -P "$(nproc)" sh -c
