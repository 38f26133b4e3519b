#!/usr/bin/env bash
# Builds the wheel `ddp-launch`: ddp-launch, ddp-bench and ddp-doctor, which need no library but glibc 2.28 or later, and the
# Python module ddp_launch; and the wheels of its extras: `ddp-launch-torchrun`, and `ddp-launch-runtime` with libddp.so and the module
# ddp_runtime. docs/wheel.md says what is in them.
#
#   tools/wheel.sh [--output DIR] [--target x86_64|aarch64]
#
# Into build-wheel/ go the compiler (the wheel `ziglang`: clang, with libc++), which pip fetches, and Boost's sources, which apt
# fetches: both of these versions alone. Headers are the packages' of tools/install-deps.sh. The wheels lie in DIR (build-wheel),
# in place of others for that processor.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
zig_version=0.17.1 wheel_version=0.45.1 auditwheel_version=6.8.2
boost=1.81.0
glibc=2.28

work=$root/build-wheel output=$root/build-wheel processor=x86_64
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; }
refuse() { echo "wheel.sh: $*; see --help" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --output | --target) [ $# -gt 1 ] || refuse "$1 needs a value" ;;&
        --output) output=$(mkdir -p "$2" && cd "$2" && pwd); shift 2 ;;
        --target) processor=$2; shift 2 ;;
        --help) usage; exit ;;
        *) refuse "unknown argument $1" ;;
    esac
done
case $processor in x86_64 | aarch64) ;; *) refuse "no wheel is known for $processor" ;; esac
umask 022
mkdir -p "$work"
exec 9>"$work/lock"
flock 9  # one at a time
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CHANGELOG.md")
export SOURCE_DATE_EPOCH ZIG_GLOBAL_CACHE_DIR=$work/zig-cache ZIG_LOCAL_CACHE_DIR=$work/zig-cache

tools=$work/tools
versions="$zig_version $wheel_version $auditwheel_version $root $(python3 --version)"
if [ "$(cat "$tools/complete" 2>/dev/null)" != "$versions" ]; then
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" --disable-pip-version-check install --quiet "ziglang==$zig_version" "wheel==$wheel_version" \
        "auditwheel==$auditwheel_version"
    echo "$versions" >"$tools/complete"
fi
zig_folder=$("$tools/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent)')

# What Debian's source package has. Where this machine's lists name packages they are asked for sources, too.
name_sources() {
    local list
    mkdir -p "$1"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -s "$list" ] || sed -n 's/^deb[[:space:]]/deb-src /p' "$list" >"$1/${list##*/}.list"
    done
    for list in /etc/apt/sources.list.d/*.sources; do
        [ ! -s "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$1/${list##*/}"
    done
}
sources=$work/boost-$boost
if [ ! -e "$sources/complete" ]; then
    rm -rf "$sources"
    mkdir -p "$sources/lists" "$sources/cache"
    name_sources "$sources/parts"
    apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$sources/parts" -o Dir::State::Lists="$sources/lists"
        -o Dir::Cache="$sources/cache" -o APT::Sandbox::User=)
    "${apt[@]}" update || true  # some may have no sources
    (cd "$sources" && "${apt[@]}" source --download-only boost1.81)
    tar -xJf "$sources/boost1.81_$boost.orig.tar.xz" -C "$sources" --strip-components=1 --wildcards --no-wildcards-match-slash \
        '*/libs/program_options/src/*.cpp' '*/LICENSE_1_0.txt'
    rm -rf "$sources"/*.tar.xz "$sources"/*.dsc "$sources/lists" "$sources/cache" "$sources/parts"
    touch "$sources/complete"
fi

# These headers alone: /usr/include has those of the host's glibc, too.
headers=$work/headers
mkdir -p "$headers"
for library in boost spdlog fmt nlohmann; do
    [ -d "/usr/include/$library" ] || { echo "wheel.sh: no /usr/include/$library; run tools/install-deps.sh" >&2; exit 1; }
    ln -sfn "/usr/include/$library" "$headers/$library"
done

grep -q "BOOST_LIB_VERSION \"$(echo "${boost%.0}" | tr . _)\"" "$headers/boost/version.hpp" ||
    { echo "wheel.sh: /usr/include/boost is not Boost $boost" >&2; exit 1; }

# Made anew where it was made by others, or otherwise.
build=$work/$processor
stamp="$versions $(cat "$root/packaging/wheel/toolchain.cmake" "$root/packaging/wheel/old_glibc.h" "$root"/packaging/wheel/dependencies/* | sha256sum)"
if [ "$(cat "$build/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$build"
    mkdir -p "$build"
    echo "$stamp" >"$build/stamp"
fi
cmake -G Ninja -S "$root" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$root/packaging/wheel/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
    -DDDP_ZIG="$zig_folder/zig" -DDDP_ZIG_TARGET="$processor-linux-gnu.$glibc" -DDDP_HEADERS="$headers" -DDDP_BOOST_SOURCE="$sources" \
    -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_EXAMPLES=OFF -DDDP_WITH_CUDA=OFF -DDDP_WITH_GLOO=OFF -DDDP_WITH_UCX=OFF \
    -DDDP_WITH_TORCH=OFF -DDDP_INSTALL=OFF -DCMAKE_SKIP_RPATH=ON >"$work/configure.log" || { cat "$work/configure.log" >&2; exit 1; }
programs=(ddp-launch ddp-bench ddp-doctor)
targets=("${programs[@]}" ddp_loaded)
# What is built for another processor is not run.
[ "$processor" != "$(uname -m)" ] || targets+=(ddp-manual-files)
cmake --build "$build" --target "${targets[@]}" -j "$(nproc)"

# What a wheel with programs or libraries has within.
add_licences() {
    install -m 644 "$root/LICENSE" "$about/licenses/"
    for library in libspdlog-dev libfmt-dev nlohmann-json3-dev; do
        install -m 644 "/usr/share/doc/$library/copyright" "$about/licenses/$library"
    done
    for library in libcxx libcxxabi libunwind; do install -m 644 "$zig_folder/lib/$library/LICENSE.TXT" "$about/licenses/$library"; done
}
# pack METADATA TAG PURE: the wheel of $parts, which has its licences already.
pack() {
    {
        sed "s/@VERSION@/$version/;/^$/,\$d" "$root/packaging/wheel/$1"
        (cd "$about/licenses" && printf 'License-File: %s\n' *)
        sed '/^$/,$!d' "$root/packaging/wheel/$1"
    } >"$about/METADATA"
    printf '%s\n' 'Wheel-Version: 1.0' 'Generator: tools/wheel.sh' "Root-Is-Purelib: $3" "$2" >"$about/WHEEL"
    "$tools/bin/python" -m wheel pack --dest-dir "$packed" "$parts" >/dev/null
}

# The parts of a wheel, which `wheel pack` lists and packs.
version=$(sed -n 's/.*define DDP_VERSION "\(.*\)"/\1/p' "$root/include/ddp/version.hpp")
tag=py3-none-manylinux_${glibc/./_}_$processor
parts=$work/parts-$processor
about=$parts/ddp_launch-$version.dist-info
scripts=$parts/ddp_launch-$version.data/scripts
rm -rf "$parts"
mkdir -p "$about/licenses" "$scripts" "$parts/ddp_launch"
install -m 644 "$root"/packaging/wheel/ddp_launch/*.py "$parts/ddp_launch/"
for program in "${programs[@]}"; do install -m 755 "$build/bin/$program" "$scripts/"; done
if [ "$processor" = "$(uname -m)" ]; then
    mkdir -p "${scripts%/*}/data"
    cp -r "$build/share" "${scripts%/*}/data/"
fi
add_licences
install -m 644 "$sources/LICENSE_1_0.txt" "$about/licenses/boost"
packed=$work/packed-$processor
rm -rf "$packed"
mkdir "$packed"
pack METADATA.in "Tag: $tag" false

parts=$work/parts-runtime-$processor
about=$parts/ddp_launch_runtime-$version.dist-info
rm -rf "$parts"
mkdir -p "$about/licenses" "$parts/ddp_runtime"
install -m 644 "$root"/packaging/wheel/ddp_runtime/*.py "$parts/ddp_runtime/"
install -m 755 "$build/runtime/loaded/libddp.so" "$parts/ddp_runtime/"
add_licences
pack METADATA.runtime.in "Tag: $tag" false

parts=$work/parts-torchrun
about=$parts/ddp_launch_torchrun-$version.dist-info
rm -rf "$parts"
mkdir -p "$about/licenses" "$parts/ddp_launch_torchrun"
install -m 644 "$root"/packaging/wheel/ddp_launch_torchrun/*.py "$parts/ddp_launch_torchrun/"
install -m 644 "$root/packaging/wheel/ddp_launch_torchrun.pth" "$parts/"
install -m 644 "$root/LICENSE" "$about/licenses/"
pack METADATA.torchrun.in 'Tag: py3-none-any' true

"$tools/bin/python" "$root/packaging/wheel/check_wheel.py" "$packed"/ddp_launch-*.whl "$glibc" "$processor" "${programs[@]}"
"$tools/bin/python" "$root/packaging/wheel/check_wheel.py" "$packed"/ddp_launch_runtime-*.whl "$glibc" "$processor" libddp.so
rm -f "$output"/ddp_launch{,_runtime}-*_"$processor".whl "$output"/ddp_launch_torchrun-*.whl
mv "$packed"/*.whl "$output/"
for wheel in "$output"/ddp_launch{,_runtime}-*_"$processor".whl "$output"/ddp_launch_torchrun-*.whl; do
    echo "pip install $wheel  # $(stat -c %s "$wheel") bytes"
done
