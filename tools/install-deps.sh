#!/usr/bin/env bash
# Installs what ddp is built and tested with, as Debian 12 packages; does nothing when all is there.
#
#   tools/install-deps.sh              to build and test ddp
#   tools/install-deps.sh --interop    also the peers of the interop tests and of benchmarks: PyTorch, LibTorch, Open MPI, MPICH;
#                                      valgrind; ssh; a browser; zsh, fish and mandoc; clang for the fuzzer and for the check of classes; and
#                                      into .interop, by pip, Python's safetensors, py-spy and a checker of Kubernetes' manifests, and the daemons
#                                      of ssh, Slurm, MUNGE and Prometheus, unpacked, so that none of them starts here
#   tools/install-deps.sh --asan       also clang and its linker, for preset asan
#   tools/install-deps.sh --soak       also what a few tests labelled soak are skipped without: podman and runc; what --debian installs
#   tools/install-deps.sh --debian     also what builds and checks the Debian packages (tools/debian.sh), and debootstrap
#   tools/install-deps.sh --torch DIR  only the newest PyTorch, accelerate and fabric, by pip into the virtual environment DIR (large)
#   tools/install-deps.sh --peers DIR  only the newest Intel MPI, Open MPI, MPICH and oneCCL, by pip, an environment each in DIR,
#                                      for tools/bench/peers.sh --peers DIR
#
# Works as root or through sudo. Never removes a package.
set -euo pipefail
case ${BASH_SOURCE[0]} in
    */*) root=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd) ;;
    *) root=$(cd .. && pwd) ;;
esac

packages=(
    g++ cmake ninja-build pkg-config ccache git ca-certificates
    libboost1.81-dev libboost-program-options1.81-dev libspdlog-dev nlohmann-json3-dev
    zlib1g-dev libssl3 openssl libgloo-dev libucx-dev libdw1
    libgtest-dev libgmock-dev libbenchmark-dev
    iproute2 util-linux
)
interop_packages=(openssh-client python3-torch libtorch-dev openmpi-bin mpich libopenmpi-dev libmpich-dev valgrind python3-venv
    clang-format python3-clang-14 clang-tidy chromium-headless-shell bash-completion zsh fish
    mandoc abigail-tools doxygen python3-markdown python3-tqdm python3-pyte)
asan_packages=(clang libclang-rt-14-dev lld)

daemon_packages=(openssh-server libwrap0 slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2
    prometheus python3-prometheus-client python3-decorator)

soak_packages=(podman runc)
debian_packages=(dpkg-dev debhelper lintian debootstrap)

usage() { sed -n '2,16s/^# \{0,1\}//p' "$0"; }

install_newest_torch() {
    local dir=$1
    [ -x "$dir/bin/pip" ] || python3 -m venv "$dir"
    "$dir/bin/pip" install --quiet torch numpy accelerate lightning-fabric click
    "$dir/bin/python" -c 'import torch; print("torch", torch.__version__)'
}

install_newest_peers() {
    install_peer "$1/intel-mpi" impi-rt impi-devel
    install_peer "$1/open-mpi" openmpi
    install_peer "$1/mpich" mpich
    install_peer "$1/oneccl" oneccl-cpu oneccl-cpu-devel intel-cmplr-lib-rt
}
# install_peer DIR PACKAGES...
install_peer() {
    local dir=$1
    shift
    [ -x "$dir/bin/pip" ] || python3 -m venv "$dir"
    "$dir/bin/pip" --disable-pip-version-check install --quiet --upgrade "$@"
    "$dir/bin/python" -c 'import sys; from importlib.metadata import version; print(*(f"{name} {version(name)}" for name in sys.argv[1:]))' "$@"
}

interop=$root/.interop
# safetensors wrote tests/checkpoint/fixtures/python.safetensors.
python_packages=(kubernetes-validate==1.34.1 py-spy==0.4.3 safetensors==0.8.0)

require_interop() {
    if ! mkdir -p "$interop" 2>/dev/null || ! [ -w "$interop" ]; then
        echo "install-deps: cannot write to $interop; remove it, or make it yours: sudo chown -R \$USER $interop" >&2
        exit 1
    fi
}

has_python_packages() {
    "$interop/bin/python" -c 'import kubernetes_validate, safetensors.torch, importlib.metadata; importlib.metadata.version("py-spy")'
}

# Beside Debian's PyTorch, which it needs. Without a package index there is a note in its place, so that a test can tell
# this host from one where nobody has asked.
install_python_packages() {
    local note=$interop/no-index
    if has_python_packages 2>/dev/null; then
        rm -f "$note"
        return
    fi
    if [ -n "$(find "$note" -mmin -1440 2>/dev/null)" ]; then
        echo "install-deps: pip reached no package index today; remove $note to ask again: $(cat "$note")" >&2
        return
    fi
    require_interop
    local status=0
    ask_pip "$note" || status=$?
    give_interop_to_user
    [ $status -eq 0 ] || exit 1
}

give_interop_to_user() {
    if [ -n "${SUDO_USER:-}" ] && [ "$(id -u)" -eq 0 ]; then chown -R "$SUDO_USER": "$interop"; fi
}

# In what pip says where it reaches no index.
no_index='no matching distribution|could not find a version|connection (broken|refused|reset|error|timed out)'
no_index+='|(NewConnection|ConnectTimeout|ReadTimeout|Protocol|Proxy|NameResolution)Error|read timed out'
no_index+='|name resolution|network is unreachable'

ask_pip() {
    local note=$1 python=$interop/bin/python status=0
    echo "install-deps: installing Python's ${python_packages[*]} into .interop"
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        /usr/bin/python3 -m venv --clear --system-site-packages "$interop" || return
    fi
    rm -f "$note"
    local log=$interop/pip.log
    timeout 300 "$python" -m pip --disable-pip-version-check install --quiet --retries 2 --timeout 30 "${python_packages[@]}" \
        >"$log" 2>&1 || status=$?
    [ $status -ne 124 ] || echo "pip was still at it after 300 s" >>"$log"
    if [ $status -eq 0 ]; then
        if ! has_python_packages; then
            echo "install-deps: pip installed ${python_packages[*]}, but Python cannot import them: see above" >&2
            return 1
        fi
    elif [ $status -eq 124 ] || grep -Eiq "$no_index" "$log"; then
        tail -n 1 "$log" >"$note"
        echo "install-deps: pip reaches no package index with ${python_packages[*]}, whose tests will be skipped: $(cat "$note")" >&2
    else
        tail -n 20 "$log" >&2
        echo "install-deps: pip could not install ${python_packages[*]} into $interop; what stands in the way is above" >&2
        return 1
    fi
}

unpack_daemons() {
    local daemons=$interop/daemons log
    [ "$(cat "$daemons/complete" 2>/dev/null)" != "${daemon_packages[*]}" ] || return 0
    require_interop
    echo "install-deps: unpacking ${daemon_packages[*]} into .interop/daemons"
    rm -rf "$daemons"
    mkdir -p "$daemons/packages"
    log=$(mktemp)
    if ! (fetch_daemons "$daemons") >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        echo "install-deps: apt-get could not fetch ${daemon_packages[*]}; what stands in the way is above" >&2
        exit 1
    fi
    rm -rf "$log" "$daemons/packages"
    echo "${daemon_packages[*]}" >"$daemons/complete"
    give_interop_to_user
}

fetch_daemons() {
    local package
    cd "$1/packages" || return
    apt-get -q download "${daemon_packages[@]}" || { update_index && apt-get -q download "${daemon_packages[@]}"; } || return
    for package in *.deb; do dpkg-deb -x "$package" "$1" || return; done
}

update_index() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get -q update
}

with_interop=no
case ${1:-} in
    "") ;;
    --interop) with_interop=yes; packages+=("${interop_packages[@]}" "${asan_packages[@]}") ;;
    --asan) packages+=("${asan_packages[@]}") ;;
    --soak) packages+=("${soak_packages[@]}" "${debian_packages[@]}") ;;
    --debian) packages+=("${debian_packages[@]}") ;;
    --torch)
        [ $# -eq 2 ] || { echo "install-deps: --torch needs a directory" >&2; exit 2; }
        install_newest_torch "$2"
        exit ;;
    --peers)
        [ $# -eq 2 ] || { echo "install-deps: --peers needs a directory" >&2; exit 2; }
        install_newest_peers "$2"
        exit ;;
    -h | --help) usage; exit ;;
    *) echo "install-deps: unknown option $1 (--interop, --asan, --soak, --debian, --torch DIR, --peers DIR)" >&2; exit 2 ;;
esac

install_packages() {
    local missing=() package status
    for package in "${packages[@]}"; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    local as_root=()
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
}

install_packages
[ $with_interop = no ] || install_python_packages
[ $with_interop = no ] || unpack_daemons
