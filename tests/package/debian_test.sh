#!/usr/bin/env bash
# The Debian packages are built and checked, installed into a bare Debian 12 without what they recommend, tested there by their own
# tests, upgraded, and purged so that nothing is left; and packaging/container's container is built and run. Root only; downloads some
# 200 MB.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "skipped: debootstrap needs root"; exit 77; }
PATH=$PATH:/usr/sbin
for tool in debootstrap dh lintian podman runc; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool here; tools/install-deps.sh --soak installs it"; exit 77; }
done
work=$(mktemp -d)
podman=(podman --root "$work/storage" --runroot "$work/run" --storage-driver=vfs --cgroup-manager=cgroupfs --events-backend=none
    --runtime "$(command -v runc)")
printf '[engine]\nlock_type = "file"\n' >"$work/containers.conf"  # not in /dev/shm, where they would stay
export CONTAINERS_CONF=$work/containers.conf
groups() { find /sys/fs/cgroup -maxdepth 3 -depth -path '*/libpod_parent*' -type d; }
groups_before=$(groups)
clean_up() {
    "${podman[@]}" rm --all --force >"$work/log" 2>&1 || true
    [ -n "$groups_before" ] || groups | xargs -r rmdir
    rm -rf "$work"
}
trap clean_up EXIT
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

# The shared library, on this machine.
for package in libddp0 libddp-dev ddp-tools; do dpkg-deb -x "$built/${package}_${version}"_*.deb "$work/unpacked"; done
DDP_TEST_PREFIX=$work/unpacked/usr bash "$top/tests/package/package_test.sh" SoakTheConsumerIsBuiltByEachCompilerAndStandard "$top" "$top/build" ||
    fail "the consumer of the unpacked packages"

root=$work/root
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >"$work/log" 2>&1 || fail "debootstrap: $(tail -n 5 "$work/log")"
# Where this machine gets packages from.
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d"
cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/"
[ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -d /usr/local/share/ca-certificates ] || cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
cp -aL /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"

# The container, on this Debian. The recipe for Apptainer does the same.
tar -C "$root" -c . | "${podman[@]}" import - base >"$work/log" 2>&1 || fail "podman import: $(tail -n 5 "$work/log")"
"${podman[@]}" build --network=host --build-arg BASE=localhost/base -t ddp -f "$top/packaging/container/Dockerfile" "$built" \
    >"$work/log" 2>&1 || fail "podman build: $(tail -n 20 "$work/log")"
limits=(--ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000)  # that podman would raise, where it may not
"${podman[@]}" run --rm --network=host "${limits[@]}" ddp -n 2 sh -c 'echo "$RANK of $WORLD_SIZE"; tr "\0" " " </proc/1/cmdline | cut -c 1-20' \
    >"$work/out" 2>"$work/log" || fail "the container: $(cat "$work/log")"
[ "$(sort "$work/out" | tr '\n' ' ')" = "/usr/bin/ddp-launch  /usr/bin/ddp-launch  0 of 2 1 of 2 " ] || fail "the container printed: $(cat "$work/out")"
"${podman[@]}" run --detach --name stopped --network=host "${limits[@]}" ddp -n 2 sleep 600 >"$work/log"
"${podman[@]}" stop --time 40 stopped >"$work/log"
code=$("${podman[@]}" wait stopped)
[ "$code" = 143 ] || fail "a container that is stopped ends with $code"
sed -n '/^%post/,/^%run/p' "$top/packaging/container/ddp.def" | grep '^    ' | sed 's/^ *//' | while read -r line; do
    grep -qF "$line" "$top/packaging/container/Dockerfile" || { echo "ddp.def alone has: $line"; exit 1; }
done || fail "the recipes differ"

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
