#!/usr/bin/env bash
# interop_test.sh CASE BIN_DIR: one case of ddp beside a peer. Exit code 77: the peer is not installed.
set -euo pipefail
case_name=$1 bin=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
missing() {
    [ "${DDP_REQUIRE_INTEROP:-0}" != 1 ] || fail "$1 is not installed; run tools/install-deps.sh --interop"
    echo "skipped: $1 is not installed"
    exit 77
}
need_program() { command -v "$1" >/dev/null || missing "$1"; }
python=/usr/bin/python3  # Debian's, which has Debian's torch
need_torch() { "$python" -c 'import torch.distributed' 2>/dev/null || missing "python3-torch"; }

# A port that nobody listens on at this moment.
free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Every line that the example promises, from both ranks and nothing else; a silent world of one would
# print other sums.
check_all_reduce() {
    for rank in 0 1; do
        printf "rank $rank of 2: %s\n" "sum [3, 30, 300]" "average [1.5, 15, 150]" \
            "from rank 0 [1, 10, 100]" "gathered [1, 10, 100, 2, 20, 200]" "largest rank 1"
    done | sort >"$work/expected"
    sort "$work/out" | diff "$work/expected" - || fail "the results differ (<: expected)"
}
with_master() { MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) timeout 60 "$@" >"$work/out"; }

OpenMpiStartsOurWorkers() {
    need_program mpirun.openmpi
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 with_master \
        mpirun.openmpi --oversubscribe -np 2 "$bin/examples/02_all_reduce"
    check_all_reduce
}

MpichStartsOurWorkers() {
    need_program mpiexec.hydra
    with_master mpiexec.hydra -n 2 "$bin/examples/02_all_reduce"
    check_all_reduce
}

# N silent worlds of one would be the worst answer.
MpiWithoutAMeetingPlaceIsRefused() {
    need_program mpiexec.hydra
    ! timeout 60 mpiexec.hydra -n 2 "$bin/examples/02_all_reduce" >"$work/out" 2>&1 ||
        fail "two ranks without MASTER_ADDR went on"
    grep -q 'MASTER_ADDR is not set' "$work/out" || fail "the error does not say what to set: $(cat "$work/out")"
}

TorchTrainsOnTheAgentsStore() {
    need_torch
    timeout 150 "$bin/ddp-launch" --nproc_per_node=2 -- "$python" -u "$here/torch_ddp.py" True
}

TorchTrainsWithoutTheAgentsStore() {
    need_torch
    timeout 150 "$bin/ddp-launch" --agent-store=off --nproc_per_node=2 -- \
        "$python" -u "$here/torch_ddp.py" False
}

TorchsStoreClientIsServed() {
    need_torch
    timeout 150 "$bin/ddp-launch" --nproc_per_node=2 -- "$python" -u "$here/torch_store.py"
}

"$case_name"
