#!/usr/bin/env bash
# install_deps_test.sh SOURCE_DIR: install-deps.sh on machines that stand-ins for dpkg-query, id, sudo and apt-get
# describe. Nothing is installed.
set -euo pipefail
script=$1/tools/install-deps.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset SUDO_USER
fail() { echo "FAILED: $*" >&2; exit 1; }

# stand_in NAME BODY: a program of that name that comes first in the path.
stand_in() { printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"; chmod +x "$work/bin/$1"; }
machine() {
    rm -rf "$work/bin"
    mkdir "$work/bin"
    for tool in bash cat env find grep mkdir mktemp rm sed tail timeout; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
}
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

# A Python environment that has no safetensors: pip is asked, and where it finds no index there is a note for the test.
machine
stand_in dpkg-query 'echo -n installed'
mkdir -p "$work/tree/tools" "$work/tree/.interop/bin"
cp "$script" "$work/tree/tools"
script=$work/tree/tools/install-deps.sh note=$work/tree/.interop/no-index
# environment BODY: of its `pip install`; what it installs can be imported once there is a file `installed`.
environment() {
    cat >"$work/tree/.interop/bin/python" <<END
#!/bin/bash
if [ "\$1" = -c ]; then [ -e $work/installed ] || { echo "No module named safetensors"; exit 1; } >&2; exit; fi
[ "\$3" != --version ] || exit 0
echo "\$*" >>$work/asked_pip
$1
END
    chmod +x "$work/tree/.interop/bin/python"
    rm -f "$work/asked_pip"
}

daemons=$work/tree/.interop/daemons
# As the script leaves them.
daemons_are_there() {
    mkdir -p "$daemons"
    (eval "$(sed -n '/^daemon_packages=(/,/)$/p' "$script")" && echo "${daemon_packages[*]}") >"$daemons/complete"
}
daemons_are_there

for message in "ERROR: No matching distribution found for safetensors" \
    "WARNING: Retrying after connection broken by 'NewConnectionError': Connection refused" \
    "urllib3.exceptions.ReadTimeoutError: Read timed out."; do
    rm -f "$note"
    environment "echo \"$message\"; exit 1"
    run --interop || fail "an absent package index is an error: $(cat "$work/err")"
    grep -qF "$message" "$note" && grep -qF "$message" "$work/err" ||
        fail "does not tell why there is no safetensors: $(cat "$work/err")"
done
rm "$work/asked_pip"
run --interop || fail "fails on a host that is known to have no index: $(cat "$work/err")"
[ ! -e "$work/asked_pip" ] && grep -q 'remove .*/no-index to ask again' "$work/err" || fail "asks pip again on the same day"

touch -d '2 days ago' "$note"
environment 'echo "ERROR: the disk is full"; exit 1'
! run --interop || fail "takes a full disk for an absent index"
grep -q 'the disk is full' "$work/err" && [ ! -e "$note" ] || fail "does not say what stands in pip's way: $(cat "$work/err")"
environment :
! run --interop || fail "takes what cannot be imported for installed"
grep -q 'Python cannot import them' "$work/err" || fail "does not say that the import failed: $(cat "$work/err")"

environment ": >$work/installed"
echo "an old one" >"$note"
touch -d '2 days ago' "$note"
(cd "$work/tree/tools" && PATH=$work/bin bash install-deps.sh --interop >"$work/out" 2>"$work/err") ||
    fail "does not install safetensors from its own folder: $(cat "$work/err")"
grep -q -- 'install .* safetensors==[0-9.]*$' "$work/asked_pip" && [ ! -e "$note" ] || fail "keeps an old note"

# Daemons: fetched and unpacked; where there is no list of packages yet, after that.
rm -rf "$daemons"
for tool in cat rm; do [ -e "$work/bin/$tool" ] || ln -s "$(command -v $tool)" "$work/bin/$tool"; done
stand_in id 'echo 0'
stand_in dpkg-deb '[ "$1" = -x ] && : >"$3/unpacked-$2"'
stand_in apt-get "case \$2 in update) : >$work/updated ;; download) [ -e $work/updated ] && : >sshd.deb ;; esac"
run --interop || fail "does not unpack the daemons: $(cat "$work/err")"
[ -e "$daemons/unpacked-sshd.deb" ] && [ -e "$daemons/complete" ] && [ ! -e "$daemons/packages" ] || fail "unpacks something else"
stand_in apt-get "echo 'E: no network'; exit 100"
run --interop || fail "fetches them again: $(cat "$work/err")"
rm -rf "$daemons"
! run --interop || fail "passes without the daemons"
grep -q 'no network' "$work/err" || fail "does not say what stands in the daemons' way"
daemons_are_there

# By root for somebody: the folder becomes theirs.
rm "$work/installed"
stand_in id 'echo 0'
stand_in chown "echo \"\$*\" >$work/chown"
SUDO_USER=somebody run --interop || fail "fails under sudo: $(cat "$work/err")"
grep -q -- "^-R somebody: $work/tree/.interop$" "$work/chown" || fail "leaves root's files to somebody"

# A folder that nobody can make, root included.
rm -rf "$work/installed" "$work/tree/.interop"
: >"$work/tree/.interop"
! run --interop || fail "passes without its folder"
grep -q "cannot write to $work/tree/.interop" "$work/err" && [ "$(wc -l <"$work/err")" -eq 1 ] ||
    fail "does not say plainly that it cannot write: $(cat "$work/err")"

! run --unknown || fail "accepts an unknown option"
grep -q 'unknown option --unknown' "$work/err" || fail "does not name the unknown option"
