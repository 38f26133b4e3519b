#!/usr/bin/env bash
# interop_test.sh CASE BUILD_DIR: one case of ddp beside a peer. Exit code 77: the peer is not installed.
set -euo pipefail
case_name=$1 build=$2 bin=$2/bin
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
# What workers write last mpiexec.hydra loses, 1 time in some 200 beside other work: they write to a file.
MpiWithoutAMeetingPlaceIsRefused() {
    need_program mpiexec.hydra
    # shellcheck disable=SC2016
    ! timeout 60 mpiexec.hydra -n 2 sh -c 'exec "$0" 2>>"$1"' "$bin/examples/02_all_reduce" "$work/errors" >"$work/out" 2>&1 ||
        fail "two ranks without MASTER_ADDR went on"
    grep -q 'MASTER_ADDR is not set' "$work/errors" || fail "the error does not say what to set: $(cat "$work/errors" "$work/out")"
}

under_launch() { timeout 150 "$bin/ddp-launch" "$@"; }

move_state_dictionaries() {
    timeout 120 "$python" "$here/torch_state_dict.py" "$build/tests/bin/ddp_test_convert_state" "$work" "$@"
}

StateDictionariesMoveBetweenPythonAndUs() {
    need_torch
    move_state_dictionaries
}

# Not in Debian 12: install-deps.sh --interop has pip install it, and leaves a note where pip reaches no package index.
need_pip_of() {
    environment=$here/../../.interop
    if [ -e "$environment/no-index" ]; then
        echo "skipped: pip had no $1 for install-deps.sh: $(cat "$environment/no-index")"
        exit 77
    fi
}

StateDictionariesMoveBetweenPythonsSafetensorsAndUs() {
    need_torch
    need_pip_of safetensors
    python=$environment/bin/python
    "$python" -c 'import safetensors.torch' 2>/dev/null || missing "Python's safetensors"
    timeout 60 "$bin/examples/03_train_digits" --epochs 1 --checkpoint "$work/run" >/dev/null
    move_state_dictionaries "$work/run"
}

# What install-deps.sh --torch DIR has installed, and DDP_NEWEST_TORCH=DIR names: too large for every run of the tests.
need_newest_torch() {
    [ -z "${DDP_NEWEST_TORCH:-}" ] || return 0
    echo "skipped: DDP_NEWEST_TORCH names no folder of install-deps.sh --torch"
    exit 77
}
StateDictionariesMoveBetweenTheNewestTorchAndUs() {
    need_newest_torch
    python=$DDP_NEWEST_TORCH/bin/python
    move_state_dictionaries
}

TorchsCollectivesWork() {
    need_torch
    under_launch --nproc_per_node=4 -- "$python" -u "$here/torch_collectives.py" "$1"
}
TorchsCollectivesWorkWithInitMethodEnv() { TorchsCollectivesWork env://; }
TorchsCollectivesWorkWithInitMethodTcp() { TorchsCollectivesWork tcp://; }

# The message that torch's @record left, then a second attempt on a fresh store.
ARecordedErrorIsReportedAndARestartTrains() {
    need_torch
    under_launch --nproc_per_node=2 --max_restarts=1 -- "$python" -u "$here/torch_failing.py" once \
        >"$work/out" 2>"$work/err" || fail "the restart did not help: $(cat "$work/err")"
    printf 'rank %s: sum 2 in attempt 1\n' 0 1 | diff - <(sort "$work/out") || fail "the output differs"
    grep -q '^ddp-launch: rank 1 (local rank 1, pid .*) failed: exit code 1$' "$work/err" &&
        grep -q '^ddp-launch:  *error  *ValueError: the data is gone$' "$work/err" ||
        fail "the report does not say what happened: $(cat "$work/err")"
}

ASystemExitLeavesNoErrorFile() {
    need_torch
    local code=0
    under_launch --nproc_per_node=2 -- "$python" -u "$here/torch_failing.py" exit 2>"$work/err" || code=$?
    [ "$code" = 3 ] || fail "exit code $code, not 3: $(cat "$work/err")"
    ! grep -q '^ddp-launch:  *error ' "$work/err" || fail "a SystemExit is no error to report: $(cat "$work/err")"
}

# One script, the same words after the launcher's name: the same lines, and the same in each rank's log file.
# Debian's torchrun of 1.13 fails with Python 3.11 unless it redirects and tees (it loses the value 0).
AnUnchangedScriptPrintsTheSameUnderTorchrun() {
    need_torch
    export PYTHON_EXEC=$python PYTHONWARNINGS=ignore
    unset OMP_NUM_THREADS
    local words=(--redirects=1 --tee=1 --nproc_per_node=2 --max_restarts=3 --standalone "$here/torch_train.py"
        --epochs=2 -- --lr=0.1 word)
    timeout 150 "$python" -m torch.distributed.run --log_dir="$work/torchrun.d" "${words[@]}" \
        >"$work/torchrun" 2>"$work/err" || fail "torchrun: $(cat "$work/err")"
    under_launch --log_dir="$work/launch.d" "${words[@]}" >"$work/launch" 2>"$work/err" ||
        fail "ddp-launch: $(cat "$work/err")"
    grep -q '1: weights' "$work/launch" || fail "it did not train: $(cat "$work/launch")"
    diff <(sort "$work/torchrun") <(sort "$work/launch") ||
        fail "the output differs (<: under torchrun)"
    local rank
    for rank in 0 1; do
        diff "$work"/torchrun.d/*/attempt_0/$rank/stdout.log "$work"/launch.d/*/attempt_0/$rank/stdout.log ||
            fail "the log of rank $rank differs (<: under torchrun)"
    done
}

TorchTrainsOnTheAgentsStore() {
    need_torch
    under_launch --nproc_per_node=2 -- "$python" -u "$here/torch_ddp.py" True
}

TorchTrainsWithoutTheAgentsStore() {
    need_torch
    under_launch --agent-store=off --nproc_per_node=2 -- \
        "$python" -u "$here/torch_ddp.py" False
}

# Those that random_programs_test expects of ddp, on 2, 3 and 4 ranks.
RandomProgramsHavePyTorchsGradients() {
    need_torch
    local ranks
    for ranks in 2 3 4; do
        "$build/tests/bin/ddp_test_export_programs" $ranks 67 >"$work/programs"
        under_launch --nproc_per_node=$ranks -- "$python" -u "$here/torch_programs.py" "$work/programs" \
            >"$work/out" 2>"$work/err" || fail "$(grep -v find_unused "$work/err")"
        [ "$(grep -c '67 programs alike' "$work/out")" = $ranks ] || fail "$(cat "$work/out")"
    done
}

# For as long as the job trains.
PrometheusReadsTheMetrics() {
    local daemons=$here/../../.interop/daemons status=0
    [ -x "$daemons/usr/bin/promtool" ] || missing promtool
    timeout 150 "$bin/ddp-launch" -n 2 --metrics="unix:$work/socket" "$bin/examples/03_train_digits" --epochs=100000 \
        >"$work/out" 2>&1 &
    local job=$!
    sed -n '/^```yaml/,/^```/{/^```/!p}' "$here/../../docs/metrics.md" >"$work/rules.yaml"
    "$daemons/usr/bin/promtool" check rules "$work/rules.yaml" || fail "the rules of docs/metrics.md"
    until grep -q 'epoch 2' "$work/out"; do
        kill -0 $job 2>/dev/null || fail "$(cat "$work/out")"
        sleep 0.1
    done
    "$python" "$here/metrics_check.py" "$work/socket" "$daemons/usr/bin/promtool" \
        "$daemons/usr/lib/python3/dist-packages" || status=$?
    kill $job
    wait $job || true
    [ $status -eq 0 ] || fail "Prometheus does not read the metrics"
    [ ! -e "$work/socket" ] || fail "the socket is left"
}

# in_browser FILE PATTERN...: what its script makes of the page has these, and no script fails.
in_browser() {
    local file=$1 pattern
    shift
    timeout 100 chromium-headless-shell --no-sandbox --headless --disable-gpu --user-data-dir="$work/browser" \
        --enable-logging=stderr --dump-dom "file://$file" >"$work/dom" 2>"$work/log" || fail "$(cat "$work/log")"
    ! grep -a CONSOLE "$work/log" || fail "a script of $file fails"
    for pattern in "$@"; do
        grep -aq -- "$pattern" "$work/dom" || fail "$file has no $pattern: $(sed '/id="data"/,/<\/script>/d' "$work/dom")"
    done
}

ReportsOpenInABrowser() {
    command -v chromium-headless-shell >/dev/null || missing chromium-headless-shell
    export HOME=$work
    "$bin/ddp-launch" -n 3 --report="$work/good.html" "$bin/examples/03_train_digits" --epochs=2 >"$work/out" 2>&1 ||
        fail "$(cat "$work/out")"
    in_browser "$work/good.html" 'The job succeeded' 'all_reduce</span>' 'step</span>' '<td>0</td><td>.*</td><td>.* ms</td>' \
        '03_train_digits' 'data-opened="[0-9]'
    # Rank 1 sleeps for 300 ms, and the two others wait for it in a collective.
    timeout --signal=TERM 3 "$bin/ddp-launch" -n 3 --report="$work/late.html" "$build/tests/bin/ddp_test_drill_worker" shm pause 1 40 2 \
        >"$work/out" 2>&1 && fail "it ended by itself"
    in_browser "$work/late.html" 'The job was stopped' 'data-opened="[0-9]' \
        '<td>1</td><td>[0-9]*</td><td>[^/]*</td><td>[^/]*</td><td>[^/]*</td><td>[0-9.]* %</td><td>[5-9][0-9]* ms\|[0-9.]* s</td>'
    "$bin/ddp-launch" -n 3 --max-restarts=1 --report="$work/bad.html" "$build/tests/bin/ddp_test_drill_worker" shm death 1 40 1 \
        >"$work/out" 2>&1 && fail "it did not fail"
    in_browser "$work/bad.html" 'The job failed' 'attempt 1' '<td class="root">SIGKILL' 'did not end</span>' 'data-opened="[0-9]'
    "$bin/ddp-launch" -n 2 --report="$work/other.html" sh -c 'echo "<script>bad()</script>" >&2; exit 3' >"$work/out" 2>&1 &&
        fail "it did not fail"
    in_browser "$work/other.html" 'not a program of this library' '&lt;script&gt;bad()' 'data-opened="[0-9]'
}

# flight_records FAULT PLACE: of a drill of three ranks in which rank 1 goes wrong, in that call of a step, as
# $work/records/rank_N.
flight_records() {
    rm -rf "$work/records"
    mkdir "$work/records"
    "$bin/ddp-launch" -n 3 --on-hang=stop --hang-timeout=0 --shutdown-timeout=1 --flight-recorder="$work/records/rank_" \
        "$build/tests/bin/ddp_test_drill_worker" shm "$1" 1 40 "$2" >"$work/out" 2>&1 && fail "the drill $1 ended well"
    grep -q '^ddp-launch: flight records at the end: .*/rank_0 to rank_2$' "$work/out" || fail "$(cat "$work/out")"
}

TqdmsBarsOfTwoRanksAreLines() {
    need_program "$python"
    "$python" -c 'import pyte, tqdm' 2>/dev/null || missing "python3-tqdm or python3-pyte"
    "$python" -B "$here/tqdm_bars.py" "$bin/ddp-launch"
}

FlightRecordsArePythonsPickles() {
    need_program "$python"
    flight_records sleep 2
    "$python" "$here/flight_check.py" "$work/records/rank_"
}

TheNewestTorchAnalysesFlightRecords() {
    need_newest_torch
    local fault place expected
    while read -r fault place expected; do
        flight_records "$fault" "$place"
        "$DDP_NEWEST_TORCH/bin/torchfrtrace" "$work/records" --prefix rank_ >"$work/analysis" 2>&1 || fail "$(cat "$work/analysis")"
        grep -q "$expected" "$work/analysis" && grep -q 'drill_worker.cpp:[1-9]' "$work/analysis" ||
            fail "$fault, $expected: $(cat "$work/analysis")"
    done <<'END'
sleep 2 missing ranks: {1}
missing 2 Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH
operation 2 Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH
count 0 Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH
dtype 0 Culprit rank 1; Error type: COLLECTIVE_DTYPE_MISMATCH
END
}

# torch_drill FAULT [OPTION...]: a script that does not know ddp goes wrong; in $work/FAULT what the launcher says.
torch_drill() {
    local fault=$1
    shift
    timeout 150 "$bin/ddp-launch" -n 3 --shutdown-timeout=2 "$@" "$python" "$here/torch_drill.py" "$fault" 1 30 "${cgroup:-}" \
        >"$work/$fault" 2>&1
}
need_torch_drills() {
    need_torch
    need_pip_of py-spy
    export PATH=$PATH:$environment/bin XDG_RUNTIME_DIR=$work
    need_program py-spy
}
# torch_drills FAULT...: at once. With --on-hang=stop, so each ends.
torch_drills() {
    local fault drills=()
    for fault in "$@"; do
        torch_drill "$fault" --on-hang=stop --hang-timeout=0 &
        drills+=($!)
    done
    for fault in "${drills[@]}"; do wait "$fault" || true; done
}
# says FAULT TEXT...: whether all of it was said, and what a fault is known by.
says() {
    local fault=$1 text
    shift
    for text in "$@"; do grep -q -- "$text" "$work/$fault" || return 1; done
}
explains() {
    local blamed='rank 1 holds up ranks 0, 2, in a collective within Tensor.backward (torch_drill.py:'
    local differ='the ranks have called different things'
    case $1 in
        sleep) says sleep "$blamed" 'rank 1 .* sleeps in clock_nanosleep, in load_batch (torch_drill.py:' ;;
        loop) says loop "$blamed" 'rank 1 .* computes, in .* (torch_drill.py:' ;;
        stop) says stop 'rank 1 .* is stopped (SIGSTOP)' '<module> (torch_drill.py:' ;;
        freeze) says freeze 'rank 1 .* is frozen, with its cgroup' 'stack of rank 1 .*, in Python:' '<module> (torch_drill.py:' ;;
        oom) says oom 'rank 1 (.*) failed: SIGKILL' "OOM killer" ;;
        death) says death 'rank 1 (.*) failed: SIGKILL' ;;
        missing | reordered) says "$1" "$differ" ' ranks 0, 2: all_reduce (torch_drill.py:' ' rank 1: broadcast (torch_drill.py:' ;;
        operation) says operation "$differ" ' ranks 0, 2: all_reduce (torch_drill.py:' ' rank 1: barrier (torch_drill.py:' ;;
        extra) says extra "$differ" ' rank 1: all_gather (torch_drill.py:' ' ranks 0, 2: ' ;;
        root) says root "$differ" ' rank 1: broadcast (torch_drill.py:' ' ranks 0, 2: ' ;;
        slow) says slow 'rank 1 slows down ranks 0, 2: ' ' rank 1 (.*pid [0-9]*) \(slept\|waited\|computed\)' \
            'rank 1 was in no collective in .* in load_batch (torch_drill.py:' ;;
        *) says "$1" '^ddp-launch: rank 1 ' ;;
    esac
}

InspectShowsWhereATorchScriptIs() {
    need_torch_drills
    torch_drill sleep &
    local job=$! of_1='/^stack of rank 1 /,/^stack of rank 2 /' is_there=no
    for _ in $(seq 300); do
        "$bin/ddp-launch" inspect --stacks >"$work/shown" 2>&1 || true
        sed "${of_1}!d" "$work/shown" >"$work/of_1"
        sed "${of_1}d" "$work/shown" >"$work/of_0"
        # Python's calls and those in C++ are read one after the other.
        if grep -q ' load_batch (torch_drill.py:' "$work/of_1" && grep -q ' Tensor.backward (_tensor.py:' "$work/of_0" &&
            grep -q ' c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so' "$work/of_0"; then
            is_there=yes
            break
        fi
        kill -0 $job 2>/dev/null || fail "$(cat "$work/sleep")"
        sleep 0.2
    done
    pkill -P $job
    wait $job || true
    [ $is_there = yes ] || fail "does not show where they are: $(cat "$work/shown")"
}

TorchScriptsThatHangAreExplained() {
    need_torch_drills
    local fault faults=(sleep missing operation)
    torch_drills "${faults[@]}"
    for fault in "${faults[@]}"; do explains $fault || fail "$fault is not explained: $(cat "$work/$fault")"; done
}

# torch_drill_on_hosts FAULT: the same with each rank under a launcher of its own, of three that are one job; in $work/FAULT
# what all of them say.
torch_drill_on_hosts() {
    local fault=$1 host port launchers=()
    port=$(free_port)
    for host in 0 1 2; do
        timeout 150 "$bin/ddp-launch" --nnodes=3 --node-rank=$host --master-addr=127.0.0.1 --master-port="$port" \
            --shutdown-timeout=2 --on-hang=stop --hang-timeout=0 "$python" "$here/torch_drill.py" "$fault" 1 30 \
            >"$work/$fault$host" 2>&1 &
        launchers+=($!)
    done
    for host in "${launchers[@]}"; do wait "$host" || true; done
    cat "$work/$fault"[0-2] >"$work/$fault"
}

TorchScriptsOfSeveralHostsThatHangAreExplained() {
    need_torch_drills
    torch_drill_on_hosts sleep
    explains sleep || fail "$(cat "$work/sleep")"
    says sleep0 'rank 1 (.*) sleeps in clock_nanosleep' || fail "$(cat "$work/sleep0")"
    says sleep1 'stack of rank 1 (pid [0-9]*), in Python:' 'load_batch (torch_drill.py:' || fail "$(cat "$work/sleep1")"
    says sleep2 'rank 1 holds up ranks 0, 2' || fail "$(cat "$work/sleep2")"
}

SoakTorchScriptsOfSeveralHosts() {
    need_torch_drills
    local fault
    for fault in loop stop missing operation slow; do
        torch_drill_on_hosts $fault
        explains $fault || fail "$fault is not explained: $(cat "$work/$fault")"
    done
}

# make_cgroup CONTROLLER: an empty one, whose folder is $cgroup then.
make_cgroup() {
    cgroup=/sys/fs/cgroup
    [ ! -e "$cgroup/$1" ] || cgroup=$cgroup/$1
    cgroup=$cgroup/ddp-drill-$$
    mkdir "$cgroup"
}

# How many of the faults of docs/failures.md are explained; the others are listed. Of those that Gloo itself ends by an
# error the rank that made it is not known. With DDP_NEWEST_TORCH the scripts are of that PyTorch.
SoakEachFaultOfATorchScript() {
    [ -z "${DDP_NEWEST_TORCH:-}" ] || python=$DDP_NEWEST_TORCH/bin/python
    need_torch_drills
    local fault right=0 count=0 wrong="" cgroup
    torch_drills missing extra reordered operation
    torch_drills dtype count root slow  # the first three end at once: beside one that computes nobody waits as long
    torch_drills loop sleep death stop
    make_cgroup freezer
    torch_drills freeze
    [ ! -e "$cgroup/freezer.state" ] || echo THAWED >"$cgroup/freezer.state"  # where nobody can be killed
    until rmdir "$cgroup" 2>/dev/null; do sleep 0.1; done
    make_cgroup memory
    echo $((512 << 20)) >"$cgroup/memory.limit_in_bytes" 2>/dev/null || echo $((512 << 20)) >"$cgroup/memory.max"
    torch_drills oom
    until rmdir "$cgroup" 2>/dev/null; do sleep 0.1; done
    for fault in missing extra reordered operation dtype count root stop loop sleep death slow freeze oom; do
        count=$((count + 1))
        if explains $fault; then right=$((right + 1)); else wrong+=" $fault"; fi
    done
    echo "$right of $count are explained; not$wrong"
    [ $right -ge 10 ] || fail "less than before: $(for fault in $wrong; do tail -n +1 -v "$work/$fault"; done)"
}

TorchsStoreClientIsServed() {
    need_torch
    under_launch --nproc_per_node=2 -- "$python" -u "$here/torch_store.py"
}

# The same weights and data: the same losses as Python's DistributedDataParallel, on each rank at each step.
LibTorchTrainsAsPythonDoes() {
    need_torch
    export PYTHONWARNINGS=ignore
    local type
    for type in float32 float64; do
        under_launch --nproc_per_node=2 -- "$build/tests/bin/ddp_torch_train_curve" $type >"$work/ours"
        under_launch --nproc_per_node=2 -- "$python" -u "$here/../torch/torch_curve.py" $type >"$work/python"
        "$python" "$here/../torch/torch_curve.py" compare "$work/ours" "$work/python" || fail "the losses of $type differ"
    done
}

OurStoreClientIsServedByTorch() {
    need_torch
    timeout 150 "$python" -u "$here/torch_store_server.py" "$build/tests/bin/ddp_test_store_client"
}

"$case_name"
