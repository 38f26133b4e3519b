#!/usr/bin/env bash
# The Debian packages are built and checked, installed into a bare Debian 12 without what they recommend, tested there by their own
# tests, upgraded, and purged so that nothing is left. Root only; downloads some 150 MB.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "skipped: debootstrap needs root"; exit 77; }
for tool in debootstrap dh lintian; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool here; tools/install-deps.sh --debian installs it"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

"$top/tools/debian.sh" || fail "tools/debian.sh"
packages=(ddp-tools libddp0 libddp-dev)
built=$top/build-debian
version=$(dpkg-parsechangelog -l "$top/packaging/debian/changelog" -S Version)

# A symbol that is gone fails the build.
sed '$p; $s/ddp::/ddp::gone_/' "$top/packaging/debian/libddp0.symbols" >"$work/symbols"
! (cd "$built/ddp-${version%-*}" && dpkg-gensymbols -c1 -plibddp0 "-I$work/symbols" -Pdebian/libddp0 -O/dev/null) >"$work/out" 2>&1 ||
    fail "a symbol that is gone is not seen"
grep -q 'ddp::gone_' "$work/out" || fail "not for the symbol: $(cat "$work/out")"

root=$work/root
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >"$work/log" 2>&1 || fail "debootstrap: $(tail -n 5 "$work/log")"
# Where this machine gets packages from.
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d"
cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/"
[ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -d /usr/local/share/ca-certificates ] || cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
cp -aL /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir "$root/packages"
for package in "${packages[@]}"; do cp "$built/${package}_${version}"_*.deb "$root/packages/"; done
inside() {
    unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@" \
        >>"$work/log" 2>&1
}
must() { inside "$@" || fail "$*: $(tail -n 30 "$work/log")"; }
files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var -o -path ./test -o -path ./packages \) -prune -o -print | sort); }

must apt-get update
# What the tests want (debian/tests/control), before the packages, so that purging these shows what is theirs.
must apt-get install -y --no-install-recommends g++ cmake make libgtest-dev pkgconf python3
files >"$work/before"
# shellcheck disable=SC2046
must apt-get install -y --no-install-recommends $(cd "$root" && printf '/%s ' packages/*.deb)
cp -r "$built/ddp-${version%-*}" "$root/test"
for test in launch consumer; do
    must sh -c "cd /test && mkdir -p /tmp/$test && AUTOPKGTEST_TMP=/tmp/$test debian/tests/$test"
done

# The next revision, over them.
for package in "${packages[@]}"; do
    dpkg-deb -R "$root/packages/${package}_${version}"_*.deb "$work/next"
    sed -i "s/^Version: $version/&+1/; s/(= $version)/(= $version+1)/g" "$work/next/DEBIAN/control"
    dpkg-deb -b "$work/next" "$root/packages/${package}_next.deb" >/dev/null
    rm -rf "$work/next"
done
must sh -c 'dpkg -i /packages/*_next.deb'
must sh -c 'cd /test && AUTOPKGTEST_TMP=/tmp/launch debian/tests/launch'
must apt-get purge -y "${packages[@]}"
files | diff "$work/before" - || fail "that is left (>) of the packages, or gone"
must sh -c '! dpkg -l | grep -E "ddp"'
echo "installed, tested, upgraded and purged: ${packages[*]} $version"
