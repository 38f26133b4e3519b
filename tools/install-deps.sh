#!/usr/bin/env bash
# Installs what ddp is built and tested with, as Debian 12 packages; does nothing when all is there.
#
#   tools/install-deps.sh              to build and test ddp
#   tools/install-deps.sh --interop    also the peers of the interop tests and of peers.sh: PyTorch, Open MPI, MPICH, Gloo
#   tools/install-deps.sh --torch DIR  only the newest PyTorch, by pip into the virtual environment DIR (large)
#
# Works as root or through sudo. Never removes a package.
set -euo pipefail

packages=(
    g++ cmake ninja-build pkg-config ccache git ca-certificates
    libboost1.81-dev libboost-program-options1.81-dev libspdlog-dev nlohmann-json3-dev
    zlib1g-dev libssl-dev libgloo-dev
    libgtest-dev libgmock-dev libbenchmark-dev
)
interop_packages=(python3-torch libtorch-dev openmpi-bin mpich libopenmpi-dev libmpich-dev valgrind)

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }

install_newest_torch() {
    local dir=$1
    [ -x "$dir/bin/pip" ] || python3 -m venv "$dir"
    "$dir/bin/pip" install --quiet torch numpy
    "$dir/bin/python" -c 'import torch; print("torch", torch.__version__)'
}

case ${1:-} in
    "") ;;
    --interop) packages+=("${interop_packages[@]}") ;;
    --torch)
        [ $# -eq 2 ] || { echo "install-deps: --torch needs a directory" >&2; exit 2; }
        install_newest_torch "$2"
        exit ;;
    -h | --help) usage; exit ;;
    *) echo "install-deps: unknown option $1 (--interop, --torch DIR)" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps: missing: ${missing[*]}" >&2
        echo "install-deps: this needs root and there is no sudo; as root, run: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "install-deps: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >>"$log" 2>&1; }
if ! { apt update && apt install -y --no-install-recommends --no-remove "${missing[@]}"; }; then
    tail -n 20 "$log" >&2
    echo "install-deps: apt-get could not install ${missing[*]}; what stands in the way is above" >&2
    exit 1
fi
