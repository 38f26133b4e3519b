#!/usr/bin/env bash
# roots_test.sh [RELEASE...]: in a fresh root of each release of Debian (default bullseye, bookworm and trixie) pip installs the wheel,
# PyTorch and what else the programs of compare_scripts.py need, as far as it finds it, and these do the same under both launchers.
# DDP_WHEELS: a folder with the wheels, else they are built. Each root takes 7 GB under TMPDIR while it is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "skipped: debootstrap needs root"; exit 77; }
PATH=$PATH:/usr/sbin
command -v debootstrap >/dev/null || { echo "skipped: no debootstrap here; tools/install-deps.sh --soak installs it"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
wheels=${DDP_WHEELS:-}
if [ -z "$wheels" ]; then
    wheels=$work/wheels
    "$here/../../tools/wheel.sh" --output "$wheels"
fi

root=$work/root log=$work/log
inside() {
    unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env -u PIP_FIND_LINKS LC_ALL=C.UTF-8 HOME=/root PATH=/usr/bin:/bin "$@"
}
must() { inside "$@" >>"$log" 2>&1 || fail "$release: $*: $(tail -n 20 "$log")"; }
status=0
[ $# -gt 0 ] || set -- bullseye bookworm trixie
for release in "$@"; do
    debootstrap --variant=minbase --include=ca-certificates,python3-venv "$release" "$root" >"$log" 2>&1 ||
        fail "debootstrap $release: $(tail -n 5 "$log")"
    # Where this machine gets packages from.
    [ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ ! -f /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/pip.conf"
    printf '127.0.0.1 localhost\n127.0.0.1 %s\n' "$(uname -n)" >"$root/etc/hosts"  # torchrun asks for the name, and waits for minutes
    cp -aL /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    mkdir "$root/wheels" "$root/test"
    cp "$wheels"/*.whl "$root/wheels/"
    cp -r "$here/scripts" "$here/compare_scripts.py" "$root/test/"
    must python3 -m venv /environment
    must /environment/bin/pip install --quiet --no-index --find-links /wheels ddp-launch
    must /environment/bin/pip install --quiet --no-cache-dir torch numpy
    for package in transformers accelerate lightning; do
        inside /environment/bin/pip install --quiet --no-cache-dir "$package" >>"$log" 2>&1 || echo "$release: pip finds no $package"
    done
    echo "$release: Python $(inside /environment/bin/python -c 'import platform, torch; print(platform.python_version(), "with PyTorch", torch.__version__)')"
    inside /environment/bin/python -B /test/compare_scripts.py || status=1
    rm -rf "$root"
done
exit $status
