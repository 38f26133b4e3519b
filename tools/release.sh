#!/usr/bin/env bash
# Makes a release of the commit that is checked out: build-release/ddp-VERSION.tar.gz and its SHA-256 sum, and the tag vVERSION.
# Nothing is pushed.
#
#   tools/release.sh
#   tools/release.sh --snapshot   of any commit and without a check: build-release/ddp-VERSION-COMMIT.tar.gz alone
#
# The version is that of include/ddp/version.hpp, where it stands as a whole and in parts. A release wants no changes beside the
# commit, CHANGELOG.md with "## VERSION, YYYY-MM-DD" as its first section, packaging/debian/changelog, packaging/conda and packaging/spack of
# this version, and no such tag yet.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
is_release=yes
case ${1-} in
    '') ;;
    --snapshot) is_release= ;;
    --help) usage; exit ;;
    *) echo "release.sh: unknown argument $1; see --help" >&2; exit 2 ;;
esac
cd "$root"
macro() { sed -n "s/^#define DDP_VERSION$1 \"\{0,1\}\([0-9.]*\)\"\{0,1\}$/\1/p" include/ddp/version.hpp; }
version=$(macro '')
faults=()
fault() { faults+=("$1"); }

if [ -n "$is_release" ]; then
    [ "$version" = "$(macro _MAJOR).$(macro _MINOR).$(macro _PATCH)" ] ||
        fault "include/ddp/version.hpp: \"$version\" is not $(macro _MAJOR).$(macro _MINOR).$(macro _PATCH), its parts"
    [ -z "$(git status --porcelain)" ] || fault "there are changes beside the commit: $(git status --porcelain | head -n 1)"
    section=$(grep -m1 '^## ' CHANGELOG.md || true)
    [[ $section =~ ^"## $version, "([0-9]{4}-[0-9]{2}-[0-9]{2})$ ]] && date -d "${BASH_REMATCH[1]}" >/dev/null 2>&1 ||
        fault "CHANGELOG.md: the first section is \"$section\"; it should be \"## $version, $(date -u +%Y-%m-%d)\""
    packaged=$(sed -n '1s/^ddp (\(.*\)-.*) .*/\1/p' packaging/debian/changelog)
    [ "$packaged" = "$version" ] || fault "packaging/debian/changelog: the first entry is of \"$packaged\", and not of $version"
    ! sed 1q packaging/debian/changelog | grep -q UNRELEASED || fault "packaging/debian/changelog: the first entry is UNRELEASED"
    grep -q "^  version: \"$version\"$" packaging/conda/recipe.yaml || fault "packaging/conda/recipe.yaml is not of $version"
    { grep -q "^    version(\"$version\")$" packaging/spack/package.py && grep -q "/ddp-$version.tar.gz" packaging/spack/package.py; } || fault "packaging/spack/package.py is not of $version"
    ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fault "there is a tag v$version; raise the version"
fi
if [ ${#faults[@]} -gt 0 ]; then
    printf 'release.sh: %s\n' "${faults[@]}" >&2
    exit 1
fi

mkdir -p build-release
name=ddp-$version
[ -n "$is_release" ] || name=$name-$(git rev-parse --short=12 HEAD)
# The same bytes for the same commit.
git -c tar.umask=0002 archive --format=tar --prefix="$name/" HEAD | gzip -9n >"build-release/$name.part"
mv "build-release/$name.part" "build-release/$name.tar.gz"
if [ -n "$is_release" ]; then
    (cd build-release && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
    git tag -a "v$version" -m "ddp $version"
fi
echo "build-release/$name.tar.gz"
