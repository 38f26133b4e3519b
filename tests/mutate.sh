#!/usr/bin/env bash
# Mutation testing: makes small mistakes in the code, one at a time, and counts those that no test sees.
#
#   tests/mutate.sh [--count 300] [--seed 1] [--room launcher,store,...] [--build DIR]
#       Draws so many mutants by the seed, evenly over the rooms, and ends with 1 when fewer than 85 % are killed. A run that was
#       interrupted goes on. All is done on copies of the sources in DIR (default: build/mutation), where results-SEED.tsv is, too.
#   --jobs N       tests so many mutants at once (default: 2), each on a copy of its own; what is drawn stays the same
#   --again        tests once more the mutants that survived
#   --minutes N    ends after so long, without a verdict if mutants are left
#   --through CMD  puts CMD in front of each compile and test, such as "nice -n 19"; it must end by executing what follows
#   --configure A  gives cmake more arguments the first time, such as those of a build that has filled ccache
#   --list         shows what would be drawn
#
# Mutants are universalmutator's (https://github.com/agroce/universalmutator), which pip installs into DIR/venv. One that the
# compiler refuses, or makes the same machine code of, is drawn anew. Mutants of no effect, each with the reason:
# tests/mutation/no_effect.txt. Mutants that these tests let survive for a reason: survivors.txt. A failure counts that is there again as its test runs alone. Tests run as the only processes of a
# namespace with a /tmp of its own, where all else is read-only: mutants may kill and remove anything. That needs root. Ends with 77
# where it is not to be had, or universalmutator is not.
set -euo pipefail

# A room, the folder of its sources, and the tests that cover it: its own first, then others that use it. A test program may have
# a filter of GoogleTest's after a colon.
rooms='
launcher       launcher                 ddp_launcher_tests ddp_launch_tests ddp_launch_hang_tests ddp_hosts_tests ddp_launch_hosts_hang_tests ddp_launch_log_disk_tests
contract       runtime/contract         contract_test ddp_launcher_tests ddp_launch_hang_tests testing_test ddp_launch_tests:LaunchWorker.*:LaunchBlame.*
store          runtime/store            store_test process_group_test:InitProcessGroup.*:SubGroups.* ddp_launch_tests:LaunchStrangers.*
reducer        runtime/reducer          bucket_plan_test reducer_test gpu_reducer_test
process_group  runtime/process_group    process_group_test collective_values_test gpu_group_test reducer_test:Order*
backends       runtime/backends         backends_test backends_values_test gloo_test nccl_test process_group_test collective_values_test gpu_group_test
checkpoint     runtime/checkpoint       checkpoint_test checkpoint_mutation_test checkpoint_manager_test checkpoint_kill_test checkpoint_gpu_test
'

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

mutator=universalmutator==1.14.1
dir=$root/build/mutation
arguments=("$@")
while [ $# -gt 0 ]; do
    case $1 in
        --build) dir=$(realpath -m "${2:?--build needs a directory}"); shift ;;
        -h | --help) usage; exit ;;
    esac
    shift
done

mkdir -p "$dir"
python=$dir/venv/bin/python
if ! "$python" -c 'import universalmutator' 2>/dev/null; then
    echo "mutate: installing $mutator into $dir/venv" >&2
    if ! { python3 -m venv --clear "$dir/venv" &&
        timeout 300 "$python" -m pip --disable-pip-version-check install --quiet --retries 2 --timeout 30 "$mutator"; } \
        >"$dir/pip.log" 2>&1; then
        tail -n 1 "$dir/pip.log" >&2
        echo "mutate: pip cannot install $mutator: see $dir/pip.log" >&2
        exit 77
    fi
fi
DDP_MUTATION_ROOMS=$rooms exec "$python" "$root/tests/mutation/mutate.py" "$root" "$dir" "${arguments[@]}"
