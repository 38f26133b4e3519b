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
mkdir -p tools include/ddp packaging/{debian,conda,spack}
cp "$source_dir/packaging/conda/recipe.yaml" packaging/conda/
cp "$source_dir/packaging/spack/package.py" packaging/spack/
cp "$source_dir/tools/release.sh" tools/
cp "$source_dir/include/ddp/version.hpp" include/ddp/
version=$(sed -n 's/.*define DDP_VERSION "\(.*\)"/\1/p' include/ddp/version.hpp)
echo "ddp ($version-1) unstable; urgency=medium" >packaging/debian/changelog
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
sed -i 's/\(DDP_VERSION_PATCH \).*/\17777/' include/ddp/version.hpp
commit parts
refuses "its parts"
git revert --no-edit HEAD >/dev/null
sed -i '1s/(.*)/(9.9.9-1)/' packaging/debian/changelog
commit debian
refuses 'packaging/debian/changelog: the first entry is of "9.9.9"'
sed -i "1s/.*/ddp ($version-1) UNRELEASED; urgency=medium/" packaging/debian/changelog
commit unreleased
refuses 'the first entry is UNRELEASED'
git revert --no-edit HEAD~2..HEAD >/dev/null
sed -i 's/^  version: .*/  version: "9.9.9"/' packaging/conda/recipe.yaml
sed -i 's/^    version(.*/    version("9.9.9")/' packaging/spack/package.py
commit others
refuses "packaging/conda/recipe.yaml is not of $version"
refuses "packaging/spack/package.py is not of $version"
git revert --no-edit HEAD >/dev/null
sed -i "s/2026-12-01/2026-12-41/" CHANGELOG.md
commit date
refuses "CHANGELOG.md: the first section is \"## $version, 2026-12-41\""
git revert --no-edit HEAD >/dev/null

tarball=$(tools/release.sh) || fail "no release: $tarball"
[ "$tarball" = "build-release/ddp-$version.tar.gz" ] || fail "it says $tarball"
(cd build-release && sha256sum --quiet -c "ddp-$version.tar.gz.sha256") || fail "another sum"
[ "$(tar -tzf "$tarball" | head -n 1)" = "ddp-$version/" ] || fail "another folder"
[ "$(git cat-file -t "v$version")" = tag ] || fail "no tag"
cp "$tarball" .git/first.tar.gz
! tools/release.sh 2>.git/out || fail "it was released twice"
grep -q "there is a tag v$version" .git/out || fail "not because of the tag: $(cat .git/out)"
snapshot=$(tools/release.sh --snapshot)
[ "$snapshot" = "build-release/ddp-$version-$(git rev-parse --short=12 HEAD).tar.gz" ] || fail "a snapshot is $snapshot"
mv "$snapshot" .git/snapshot.tar.gz
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=tar.umask GIT_CONFIG_VALUE_0=0077 tools/release.sh --snapshot >/dev/null
cmp "$snapshot" .git/snapshot.tar.gz || fail "other bytes for the same commit"
cmp "$tarball" .git/first.tar.gz || fail "a snapshot has changed the release"
! tools/release.sh --tag 2>.git/out || fail "an option that there is not"
