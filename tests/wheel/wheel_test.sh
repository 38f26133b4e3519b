#!/usr/bin/env bash
# wheel_test.sh LAUNCH_TESTS: the wheel is built, installed into an environment of its own, used, and removed so that nothing is left;
# its extras, too; through torchrun's the kills of LAUNCH_TESTS go.
set -euo pipefail
launch_tests=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DDP_LAUNCH PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

fail() { echo "FAILED: $*" >&2; exit 1; }
# Empty folders for manual pages and completion pip does not remove.
files() { find "$work/environment" -not -name '*.pyc' -not -name __pycache__ -not \( -type d -path "$work/environment/share*" \) | sort; }

"$here/../../tools/wheel.sh" --output "$work"
wheel=$(echo "$work"/ddp_launch-*.whl)
runtime=$(echo "$work"/ddp_launch_runtime-*.whl)
export PIP_FIND_LINKS=$work PIP_NO_INDEX=1

# The check sees what is wrong.
refuses() {
    local why=$1
    shift
    ! "$here/../../build-wheel/tools/bin/python" "$here/../../packaging/wheel/check_wheel.py" "$@" 2>"$work/out" || fail "no fault is seen: $why"
    grep -q "$why" "$work/out" || fail "not for $why: $(cat "$work/out")"
}
programs=(ddp-launch ddp-bench ddp-doctor)
refuses 'ddp-launch needs GLIBC_2\.' "$wheel" 2.17 "$(uname -m)" "${programs[@]}"
refuses 'auditwheel would call it manylinux_2_' "$wheel" 2.17 "$(uname -m)" "${programs[@]}"
refuses 'its programs are ' "$wheel" 2.28 "$(uname -m)" ddp-launch ddp-bench
refuses 'libddp.so needs GLIBC_2\.' "$runtime" 2.17 "$(uname -m)" libddp.so
mkdir "$work/poor"
poor=$work/poor/${wheel##*/}
python3 - "$wheel" "$poor" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, zipfile.ZipFile(sys.argv[2], "w") as poor:
    for info in wheel.infolist():
        if not info.filename.endswith("/libcxx"):
            info.external_attr = 0o644 << 16
            poor.writestr(info, wheel.read(info))
END
refuses "the licences {'libcxx'} are missing" "$poor" 2.28 "$(uname -m)" "${programs[@]}"
refuses 'ddp-launch is no program by its mode' "$poor" 2.28 "$(uname -m)" "${programs[@]}"

python3 -m venv "$work/environment"
bin=$work/environment/bin
# As pip writes PyTorch's.
printf '#!%s\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n' "$bin/python3" >"$bin/torchrun"
chmod 755 "$bin/torchrun"
files >"$work/before"
"$bin/pip" install --quiet --no-compile ddp-launch
export PATH=$bin:$PATH

[ "$(ddp-launch --no-python -n 2 sh -c 'echo $WORLD_SIZE' 2>/dev/null)" = $'2\n2' ] || fail "ddp-launch starts no workers"
[ "$(head -c 4 "$bin/ddp-launch")" = $'\x7fELF' ] || fail "ddp-launch is a script"
[ "$("$bin/python" -m ddp_launch --version)" = "$(ddp-launch --version)" ] || fail "python -m ddp_launch is another program"
printf 'import os; print(os.environ["RANK"])' >"$work/rank.py"
[ "$(ddp-launch -n 2 "$work/rank.py" 2>/dev/null | sort)" = $'0\n1' ] || fail "ddp-launch runs no script"
ddp-bench all_reduce --max-bytes 1K >"$work/out" 2>&1 || fail "$(cat "$work/out")"
grep -q '^# Out of bounds values : 0 OK$' "$work/out" || fail "$(cat "$work/out")"
ddp-doctor >"$work/out" 2>&1 || [ $? -eq 1 ] || fail "$(cat "$work/out")"
grep -q '^ddp-doctor: this host ' "$work/out" || fail "$(cat "$work/out")"
"$bin/python" "$here/module_test.py"
[ "$(man -w ddp-launch)" = "$work/environment/share/man/man1/ddp-launch.1" ] || fail "no manual page is found"
[ -s "$work/environment/share/bash-completion/completions/ddp-launch" ] || fail "no completion for bash"

! torchrun --version 2>/dev/null || fail "torchrun is ours, and nobody has asked for that"
files >"$work/without_extra"
cp "$bin/torchrun" "$work/torchrun"
"$bin/pip" install --quiet --no-compile 'ddp-launch[torchrun]'
[ "$(torchrun -n 2 "$work/rank.py" 2>/dev/null | sort)" = $'0\n1' ] || fail "torchrun is not ours"
[ "$("$bin/python" -m torch.distributed.run --version)" = "$(ddp-launch --version)" ] || fail "torch.distributed.run is not ours"
DDP_TEST_LAUNCHER=$bin/torchrun "$launch_tests" --gtest_filter='RandomKill.SoakNobodySurvives*' >"$work/out" 2>&1 ||
    fail "$(tail -40 "$work/out")"
grep ' kills, ' "$work/out"
"$bin/pip" uninstall --quiet --yes ddp-launch-torchrun
files | diff "$work/without_extra" - || fail "that is left (>) of the extra, or gone"
cmp "$bin/torchrun" "$work/torchrun" || fail "torchrun has changed"

"$bin/pip" install --quiet --no-compile 'ddp-launch[runtime]'
printf '%s\n' 'from array import array' 'import ddp_runtime' 'numbers = array("f", [1, 2])' \
    'ddp_runtime.init_process_group().all_reduce(numbers)' 'print(numbers.tolist())' >"$work/sum.py"
[ "$(ddp-launch -n 2 "$work/sum.py" 2>/dev/null)" = $'[2.0, 4.0]\n[2.0, 4.0]' ] || fail "ranks in Python do not add"
"$bin/pip" uninstall --quiet --yes ddp-launch-runtime
files | diff "$work/without_extra" - || fail "that is left (>) of the extra, or gone"

"$bin/pip" uninstall --quiet --yes ddp-launch
files | diff "$work/before" - || fail "that is left (>) of the wheel, or gone"
