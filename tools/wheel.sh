#!/usr/bin/env bash
# Builds the wheel `ddp-launch`: ddp-launch, ddp-bench and ddp-doctor, which need no library but glibc 2.28 or later, and the
# Python module ddp_launch. docs/wheel.md says what is in it.
#
#   tools/wheel.sh [--output DIR] [--target x86_64|aarch64]
#
# Into build-wheel/ go the compiler (the wheel `ziglang`: clang, with libc++), which pip fetches, and Boost's sources, which apt
# fetches: both of these versions alone. Headers are the packages' of tools/install-deps.sh. The wheel lies in DIR (build-wheel).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
zig_version=0.17.1 wheel_version=0.45.1 auditwheel_version=6.8.2
boost=1.81.0
glibc=2.28

work=$root/build-wheel output=$root/build-wheel processor=x86_64
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
while [ $# -gt 0 ]; do
    case $1 in
        --output) output=$(mkdir -p "$2" && cd "$2" && pwd); shift 2 ;;
        --target) processor=$2; shift 2 ;;
        --help) usage; exit ;;
        *) echo "wheel.sh: unknown argument $1; see --help" >&2; exit 2 ;;
    esac
done
case $processor in x86_64 | aarch64) ;; *) echo "wheel.sh: no wheel is known for $processor" >&2; exit 2 ;; esac
mkdir -p "$work"

tools=$work/tools
if [ "$(cat "$tools/complete" 2>/dev/null)" != "$zig_version $wheel_version $auditwheel_version" ]; then
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" --disable-pip-version-check install --quiet "ziglang==$zig_version" "wheel==$wheel_version" \
        "auditwheel==$auditwheel_version"
    echo "$zig_version $wheel_version $auditwheel_version" >"$tools/complete"
fi
zig=$("$tools/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')

# What Debian's source package has, by a list of its own: that of the machine may name no sources.
sources=$work/boost-$boost
if [ ! -e "$sources/complete" ]; then
    rm -rf "$sources"
    mkdir -p "$sources/lists" "$sources/cache"
    printf '%s\n' 'Types: deb-src' 'URIs: http://deb.debian.org/debian' 'Suites: bookworm' 'Components: main' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$sources/list.sources"
    apt=(apt-get -qq -o Dir::Etc::SourceList="$sources/list.sources" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$sources/lists"
        -o Dir::Cache="$sources/cache" -o APT::Sandbox::User=)
    "${apt[@]}" update
    (cd "$sources" && "${apt[@]}" source --download-only boost1.81)
    tar -xJf "$sources/boost1.81_$boost.orig.tar.xz" -C "$sources" --strip-components=1 --wildcards '*/libs/program_options/src/*.cpp'
    rm -rf "$sources"/*.tar.xz "$sources"/*.dsc "$sources/lists" "$sources/cache"
    touch "$sources/complete"
fi

# These headers alone: /usr/include has those of the host's glibc, too.
headers=$work/headers
mkdir -p "$headers"
for library in boost spdlog fmt nlohmann; do
    [ -d "/usr/include/$library" ] || { echo "wheel.sh: no /usr/include/$library; run tools/install-deps.sh" >&2; exit 1; }
    ln -sfn "/usr/include/$library" "$headers/$library"
done

build=$work/$processor
cmake -G Ninja -S "$root" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$root/packaging/wheel/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
    -DDDP_ZIG="$zig" -DDDP_ZIG_TARGET="$processor-linux-gnu.$glibc" -DDDP_HEADERS="$headers" -DDDP_BOOST_SOURCE="$sources" \
    -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_EXAMPLES=OFF -DDDP_WITH_CUDA=OFF -DDDP_WITH_GLOO=OFF -DDDP_WITH_UCX=OFF \
    -DDDP_WITH_TORCH=OFF -DDDP_INSTALL=OFF -DCMAKE_SKIP_RPATH=ON >"$work/configure.log" || { cat "$work/configure.log" >&2; exit 1; }
programs=(ddp-launch ddp-bench ddp-doctor)
cmake --build "$build" --target "${programs[@]}" -j "$(nproc)"

# The parts of a wheel, which `wheel pack` lists and packs.
version=$(sed -n 's/.*define DDP_VERSION "\(.*\)"/\1/p' "$root/include/ddp/version.hpp")
tag=py3-none-manylinux_${glibc/./_}_$processor
parts=$work/parts-$processor
rm -rf "$parts"
mkdir -p "$parts/ddp_launch-$version.dist-info/licenses" "$parts/ddp_launch-$version.data/scripts"
cp -r "$root/packaging/wheel/ddp_launch" "$parts/"
rm -rf "$parts/ddp_launch/__pycache__"
for program in "${programs[@]}"; do
    cp "$build/bin/$program" "$parts/ddp_launch-$version.data/scripts/"
done
cp "$root/LICENSE" "$parts/ddp_launch-$version.dist-info/licenses/"
sed "s/@VERSION@/$version/" "$root/packaging/wheel/METADATA.in" >"$parts/ddp_launch-$version.dist-info/METADATA"
printf '%s\n' 'Wheel-Version: 1.0' 'Generator: tools/wheel.sh' 'Root-Is-Purelib: false' "Tag: $tag" \
    >"$parts/ddp_launch-$version.dist-info/WHEEL"
"$tools/bin/python" -m wheel pack --dest-dir "$output" "$parts" >/dev/null
wheel=$output/ddp_launch-$version-$tag.whl

"$tools/bin/python" "$root/packaging/wheel/check_wheel.py" "$wheel" "$glibc"
# auditwheel names the oldest glibc that would do.
needed=$("$tools/bin/python" -m auditwheel show "$wheel" | grep -o "manylinux_2_[0-9]*_$processor\"" | tail -n 1)
needed=${needed#manylinux_2_} needed=${needed%_"$processor"*}
if [ -z "$needed" ] || [ "$needed" -gt "${glibc#2.}" ]; then
    "$tools/bin/python" -m auditwheel show "$wheel" >&2
    exit 1
fi
echo "$wheel: $(stat -c %s "$wheel") bytes"
