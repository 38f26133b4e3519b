#!/usr/bin/env bash
# release_test.sh SOURCE_DIR: tools/release.sh, in a small repository: what it refuses, and what it makes.
set -euo pipefail
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
for who in AUTHOR COMMITTER; do export "GIT_${who}_NAME=tests" "GIT_${who}_EMAIL=tests@localhost"; done

cd "$work"
mkdir -p tools include/ddp packaging/debian
cp "$source_dir/tools/release.sh" tools/
cp "$source_dir/include/ddp/version.hpp" include/ddp/
cp "$source_dir/packaging/debian/changelog" packaging/debian/
version=$(sed -n 's/.*define DDP_VERSION "\(.*\)"/\1/p' include/ddp/version.hpp)
printf '# Changes\n\n## Unreleased\n\n- all\n' >CHANGELOG.md
echo /build-release/ >.gitignore
git init -q
commit() { git add -A && git commit -q -m "$1"; }
commit first

refuses() {
    ! tools/release.sh >"$work/.git/out" 2>&1 || fail "it was released: $1"
    grep -qF "$1" .git/out || fail "not because of $1: $(cat .git/out)"
    [ -z "$(git tag)" ] || fail "there is a tag: $1"
}
refuses 'CHANGELOG.md: the first section is "## Unreleased"'
sed -i "s/^## Unreleased/## $version, 2026-12-01/" CHANGELOG.md
refuses 'there are changes beside the commit'
commit changes
sed -i 's/DDP_VERSION_PATCH 0/DDP_VERSION_PATCH 7/' include/ddp/version.hpp
commit parts
refuses "its parts"
git revert --no-edit HEAD >/dev/null
sed -i '1s/(.*)/(9.9.9-1)/' packaging/debian/changelog
commit debian
refuses 'packaging/debian/changelog: the first entry is of "9.9.9"'
git revert --no-edit HEAD >/dev/null

tarball=$(tools/release.sh) || fail "no release: $tarball"
[ "$tarball" = "build-release/ddp-$version.tar.gz" ] || fail "it says $tarball"
(cd build-release && sha256sum --quiet -c "ddp-$version.tar.gz.sha256") || fail "another sum"
[ "$(tar -tzf "$tarball" | head -n 1)" = "ddp-$version/" ] || fail "another folder"
[ "$(git cat-file -t "v$version")" = tag ] || fail "no tag"
cp "$tarball" first.tar.gz
! tools/release.sh 2>.git/out || fail "it was released twice"
grep -q "there is a tag v$version" .git/out || fail "not because of the tag: $(cat .git/out)"
tools/release.sh --snapshot >/dev/null
cmp "$tarball" first.tar.gz || fail "other bytes for the same commit"
! tools/release.sh --tag 2>.git/out || fail "an option that there is not"
