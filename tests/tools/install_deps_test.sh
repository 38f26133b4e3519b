#!/usr/bin/env bash
# install_deps_test.sh SOURCE_DIR: install-deps.sh on machines that stand-ins for dpkg-query, id, sudo and apt-get
# describe. Nothing is installed.
set -euo pipefail
script=$1/tools/install-deps.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# stand_in NAME BODY: a program of that name that comes first in the path.
stand_in() { printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"; chmod +x "$work/bin/$1"; }
machine() { rm -rf "$work/bin"; mkdir "$work/bin"; for tool in bash cat env mktemp rm sed tail; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done; }
run() { PATH=$work/bin "$script" "$@" >"$work/out" 2>"$work/err"; }

machine
stand_in dpkg-query 'echo -n installed'
stand_in apt-get "touch $work/asked"
run || fail "does not pass when all is there: $(cat "$work/err")"
[ ! -e "$work/asked" ] && [ ! -s "$work/out" ] || fail "is not quiet when all is there"

machine
stand_in dpkg-query '[ "${*: -1}" = cmake ] && exit 1; echo -n installed'
stand_in id 'echo 1000'
! run || fail "passes without root, sudo and cmake"
grep -q 'missing: cmake$' "$work/err" || fail "does not name what is missing: $(cat "$work/err")"

stand_in sudo "echo \"\$@\" >>$work/sudo; exec \"\$@\""
stand_in apt-get 'exit 0'
run || fail "does not use sudo: $(cat "$work/err")"
grep -q 'apt-get -q install -y --no-install-recommends --no-remove cmake$' "$work/sudo" ||
    fail "asks for something else: $(cat "$work/sudo")"

machine
stand_in dpkg-query 'exit 1'
stand_in id 'echo 0'
stand_in apt-get '[ "$2" = update ] || { echo "E: a held package conflicts"; exit 100; }'
! run || fail "passes although apt-get failed"
grep -q 'a held package conflicts' "$work/err" || fail "does not say what stands in the way"

# A Python environment that has no safetensors: pip is asked, and where it fails there is a note for the test.
machine
stand_in dpkg-query 'echo -n installed'
ln -s "$(command -v timeout)" "$work/bin/timeout"
mkdir -p "$work/tree/tools" "$work/tree/.interop/bin"
cp "$script" "$work/tree/tools"
script=$work/tree/tools/install-deps.sh note=$work/tree/.interop/no-index
environment() { printf '#!/bin/bash\n[ "$1" = -c ] && exit 1\n%s\n' "$1" >"$work/tree/.interop/bin/python"; }
environment 'echo "ERROR: no matching distribution"; exit 1'
chmod +x "$work/tree/.interop/bin/python"
run --interop || fail "an absent package index is an error: $(cat "$work/err")"
grep -q 'no matching distribution' "$note" && grep -q 'no matching distribution' "$work/err" ||
    fail "does not tell why there is no safetensors: $(cat "$work/err")"
environment "echo \"\$*\" >$work/asked_pip"
run --interop || fail "does not install safetensors: $(cat "$work/err")"
grep -q -- '-m pip install .* safetensors$' "$work/asked_pip" && [ ! -e "$note" ] || fail "keeps an old note"

! run --unknown || fail "accepts an unknown option"
grep -q 'unknown option --unknown' "$work/err" || fail "does not name the unknown option"
