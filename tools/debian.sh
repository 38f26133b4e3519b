#!/usr/bin/env bash
# Builds the Debian packages ddp-tools, libddp0 and libddp-dev of the checkout into build-debian/, with their source package, and
# checks them with lintian. packaging/debian says what is in them. Needs what tools/install-deps.sh --debian installs.
#
#   tools/debian.sh
#   tools/debian.sh --symbols   adds what libddp.so newly exports to packaging/debian/libddp0.symbols; refuses where a symbol is gone
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; }
takes_symbols=
case ${1-} in
    '') ;;
    --symbols) takes_symbols=yes ;;
    --help) usage; exit ;;
    *) echo "debian.sh: unknown argument $1; see --help" >&2; exit 2 ;;
esac
for tool in dpkg-buildpackage dh lintian; do
    command -v "$tool" >/dev/null || { echo "debian.sh: no $tool here; tools/install-deps.sh --debian installs it" >&2; exit 1; }
done
version=$(sed -n 's/.*define DDP_VERSION "\(.*\)"/\1/p' "$root/include/ddp/version.hpp")
packaged=$(dpkg-parsechangelog -l "$root/packaging/debian/changelog" -S Version)
[ "${packaged%-*}" = "$version" ] || {
    echo "debian.sh: packaging/debian/changelog is of $packaged, include/ddp/version.hpp of $version" >&2
    exit 1
}

umask 022
work=$root/build-debian
source=$work/ddp-$version
mkdir -p "$work"
exec 9>"$work/lock"
flock 9  # one at a time
find "$work" -mindepth 1 -maxdepth 1 -not -name lock -exec rm -rf {} +
mkdir "$source"
# What git keeps, as it is now, without data of others, whose license would have to be quoted.
(cd "$root" && git ls-files -z --cached --others --exclude-standard ':!examples/data' | tar -c --null -T - --ignore-failed-read) | tar -x -C "$source"
tar -cJf "$work/ddp_$version.orig.tar.xz" -C "$work" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$(dpkg-parsechangelog -l "$root/packaging/debian/changelog" -S Timestamp)" "ddp-$version"
cp -r "$source/packaging/debian" "$source/debian"
# A symbol that is gone fails the build; one that is new is an error of lintian's.
[ -z "$takes_symbols" ] || rm -f "$source/debian/libddp0.symbols"
export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache}  # debhelper has another HOME
(cd "$source" && dpkg-buildpackage --no-sign) >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log" >&2; exit 1; }

if [ -n "$takes_symbols" ]; then
    symbols=$root/packaging/debian/libddp0.symbols
    (cd "$source" && dpkg-gensymbols -t -q -c1 -plibddp0 "-v$version" "-I$symbols" -Pdebian/libddp0 "-O$work/symbols") || {
        echo "debian.sh: a symbol is gone, which takes another soname (runtime/CMakeLists.txt, libddp.map): " >&2
        grep '^#MISSING' "$work/symbols" >&2
        exit 1
    }
    # By their names in C++, as a mangled one says little.
    c++filt <"$work/symbols" | sed -E '/::/s/^ ([^("].*)@(DDP_[0-9]+) ([^ ]+)$/ (c++)"\1@\2" \3/; s/^ \(c\+\+\)"(DDP_[0-9]+@.*)"/ \1/' |
        awk '!seen[$0]++' >"$symbols"
fi
# Nobody has asked Debian for them, so that there is no request to close.
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs --allow-root "$work"/*.changes
printf 'apt install'
printf ' %s' "$work"/{ddp-tools,libddp0,libddp-dev}_*.deb
echo
