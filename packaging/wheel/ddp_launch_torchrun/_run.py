"""torch.distributed.run.run() by ddp-launch: for accelerate, fabric and others that start jobs by a call."""
import functools
import math
import os
import re
import signal
import sys
import threading

from ddp_launch._job import Job, LaunchError, launcher_path
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from ddp_launch_torchrun import interpreter_words


class _Ended:
    """Whoever catches none of these ends with this code, and without a traceback: ddp-launch has said what happened."""

    code = 1


class JobFailed(_Ended, ChildFailedError):
    """Of the rank that failed first, as far as the report tells of it."""

    def __init__(self, name, result):
        found = re.search(r"rank (\d+) \(local rank (\d+), pid (\d+)\) failed: (?:.*\(signal (\d+)\))?", result.report)
        rank, local_rank, pid, by = [int(number or 0) for number in found.groups()] if found else (0, 0, 0, 0)
        failure = ProcessFailure(local_rank, pid, -by if by else result.exit_code, "<N/A>")
        failure.message = result.report
        super().__init__(name, {rank: failure})
        self.code = result.exit_code


class JobStopped(_Ended, SignalException):
    def __init__(self, by, result):
        super().__init__(result.report, by)
        self.code = result.exit_code


class WrongOptions(_Ended, LaunchError):
    code = 2


def _end_quietly():
    """Of the interpreter, when one of those ends it."""
    before = sys.excepthook

    def hook(kind, error, trace):
        if issubclass(kind, _Ended):
            raise SystemExit(error.code)
        before(kind, error, trace)

    if getattr(before, "__qualname__", "") != hook.__qualname__:
        sys.excepthook = hook


def run_by_launcher(module):
    """The function that stands for `run` of torch.distributed.run, which `module` is."""
    torchs = module.run

    @functools.wraps(torchs)
    def run(args):
        """Starts the job of `args`, as get_args_parser() makes them, by ddp-launch, and returns when it has succeeded.

        Workers read from /dev/null. Signals that ask torchrun to end are passed on, where this is the main thread.
        """
        if not getattr(args, "use_env", True):
            return torchs(args)  # torch.distributed.launch: --local-rank, or --local_rank, for the script
        if "pydevd" in sys.modules:
            return torchs(args)  # which follows processes from Python to Python
        _end_quietly()
        words, variables = command_line_of(args, module.get_args_parser())
        with _Signals(args) as signals:
            with Job([launcher_path(), *words], variables, _shutdown_timeout(args)) as job:
                signals.pass_on_to(job)
                job.wait(math.inf)
                try:
                    result = job.result(False, None)
                except LaunchError as why:
                    raise WrongOptions(str(why)) from None
        if result.exit_code == 0:
            return
        if signals.first is not None:
            raise JobStopped(signals.first, result)
        raise JobFailed(args.training_script, result)

    return run


def command_line_of(args, parser):
    """ddp-launch's words and variables. PET_ variables, which are defaults of `parser`, it reads itself."""
    words, variables = interpreter_words(), {}
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if not names or not hasattr(args, action.dest):
            continue
        value = getattr(args, action.dest)
        if str(value) == str(action.default):
            continue
        if value is None or value is False:
            variables["PET_" + action.dest.upper()] = ""  # it is not set
        elif action.nargs == 0:
            words.append(names[0])
        elif isinstance(value, (list, tuple)):
            words.append(f"{names[0]}={','.join(str(one).replace(',', ',,') for one in value)}")
        else:
            words.append(f"{names[0]}={value}")
    return words + ["--", args.training_script, *args.training_script_args], variables


def _shutdown_timeout(args):
    given = getattr(args, "shutdown_timeout", None)
    try:
        return float(given if given is not None else os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 30))
    except ValueError:
        return 30.0  # ddp-launch refuses it


class _Signals:
    """Those that --signals-to-handle names are passed on to the job, as soon as there is one."""

    def __init__(self, args):
        names = getattr(args, "signals_to_handle", None) or "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
        found = [getattr(signal, "SIG" + name.strip().upper().replace("SIG", ""), None) for name in names.split(",")]
        self._numbers = [number for number in found if isinstance(number, signal.Signals)]
        self._before = {}
        self._job = None
        self._early = []
        self.first = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                before = signal.getsignal(number)
                # nohup's remains ignored; what C has set could not be set again.
                if before is None or (number == signal.SIGHUP and before == signal.SIG_IGN):
                    continue
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, kind, error, trace):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number, frame):
        self.first = self.first or signal.Signals(number)
        if self._job is None:
            self._early.append(number)
        else:
            self._job.pass_on(number)

    def pass_on_to(self, job):
        self._job = job
        for number in self._early:
            job.pass_on(number)
