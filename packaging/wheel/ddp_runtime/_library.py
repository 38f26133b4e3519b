"""libddp.so, whose C interface is declared in ddp/ddp.h."""
import atexit
import ctypes
import functools
import operator
import os
import pathlib
import queue
import sys
import threading


class GroupError(RuntimeError):
    """What ddp has to say; `kind` is one of KINDS, `rank` that of the job which it is due to, or None."""

    __module__ = "ddp_runtime"
    KINDS = ("", "error", "usage", "system", "timeout", "peer", "backend", "checkpoint", "memory")

    def __init__(self, message: str, status: int = 1, rank: int = -1) -> None:
        super().__init__(message)
        self.kind = self.KINDS[status] if 0 < status < len(self.KINDS) else "error"
        self.rank = None if rank < 0 else rank


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int), ("device", ctypes.c_int)]


class PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, by which alone the address of read-only memory is known."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def address_of(view: memoryview):
    buffer = PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    try:
        return buffer.buf
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def int32(value, what: str) -> int:
    """ctypes would cut it."""
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{what} is {number}, no number of 32 bits")
    return number


_GROUP, _WORK, _STREAM, _INT = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_void_p)
_END = [_STREAM, _OUT]
_STATUS = {
    "ddp_init_process_group": [ctypes.c_char_p, _OUT],
    "ddp_all_reduce": [_GROUP, Tensor, _INT, *_END],
    "ddp_reduce": [_GROUP, Tensor, Tensor, _INT, _INT, *_END],
    "ddp_broadcast": [_GROUP, Tensor, _INT, *_END],
    "ddp_all_gather": [_GROUP, Tensor, Tensor, *_END],
    "ddp_gather": [_GROUP, Tensor, Tensor, _INT, *_END],
    "ddp_scatter": [_GROUP, Tensor, Tensor, _INT, *_END],
    "ddp_reduce_scatter": [_GROUP, Tensor, Tensor, _INT, *_END],
    "ddp_all_to_all": [_GROUP, Tensor, Tensor, *_END],
    "ddp_send": [_GROUP, Tensor, _INT, *_END],
    "ddp_recv": [_GROUP, Tensor, _INT, *_END],
    "ddp_barrier": [_GROUP],
    "ddp_group_split": [_GROUP, _INT, _INT, _OUT],
    "ddp_wait": [_WORK, _STREAM],
}
_OTHERS = {
    "ddp_last_error": (ctypes.c_char_p, []),
    "ddp_last_error_rank": (_INT, []),
    "ddp_report_failure": (_INT, [ctypes.c_char_p, _INT]),
    "ddp_version": (ctypes.c_char_p, []),
    "ddp_set_call_site": (None, [ctypes.c_char_p, ctypes.c_uint32]),
    "ddp_group_destroy": (None, [_GROUP]),
    "ddp_group_rank": (_INT, [_GROUP]),
    "ddp_group_size": (_INT, [_GROUP]),
    "ddp_group_local_rank": (_INT, [_GROUP]),
    "ddp_group_local_size": (_INT, [_GROUP]),
    "ddp_group_backend": (ctypes.c_char_p, [_GROUP]),
    "ddp_publish_progress": (None, [_GROUP, ctypes.c_int64, ctypes.c_double]),
    "ddp_work_is_completed": (_INT, [_WORK]),
}


@functools.lru_cache(maxsize=None)
def functions() -> ctypes.CDLL:
    library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libddp.so")))
    for name, arguments in _STATUS.items():
        getattr(library, name).restype = _INT
        getattr(library, name).argtypes = arguments
    for name, (result, arguments) in _OTHERS.items():
        getattr(library, name).restype = result
        getattr(library, name).argtypes = arguments
    return library


def call(name: str, *arguments, line=None) -> None:
    """Of a function that returns a ddp_status; `line`: a file's name, as bytes that stay, and a number."""
    library = functions()
    if line is not None:
        library.ddp_set_call_site(*line)
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise GroupError(library.ddp_last_error().decode(errors="replace"), status, library.ddp_last_error_rank())


class _Helper:
    """A thread that makes the calls which block, so that the main thread hears signals meanwhile."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name="ddp_runtime", daemon=True).start()

    def _run(self) -> None:
        while True:
            function, outcome, done = self._calls.get()
            try:
                function()
            except BaseException as error:
                outcome.append(error)
            done.release()
            del function, outcome, done  # what they hold, until the next call

    def make(self, function) -> None:
        outcome, done = [], threading.Lock()
        done.acquire()
        self._calls.put((function, outcome, done))
        done.acquire()
        if outcome:
            raise outcome[0]


_helper = None


def call_blocking(name: str, *arguments, line=None) -> None:
    """The same. An exception of a signal handler leaves the call to the helper, which holds the arguments until it has returned."""
    global _helper
    if threading.current_thread() is not threading.main_thread():
        return call(name, *arguments, line=line)
    if _helper is None or _helper.process != os.getpid():
        _helper = _Helper()
    return _helper.make(functools.partial(call, name, *arguments, line=line))


def leave_because_of_peers() -> None:
    """Who ends by a GroupError that another rank has caused is not to blame: the launcher sees that by the exit code."""
    before = sys.excepthook
    if getattr(before, "is_of_ddp", False):
        return

    def hook(kind, error, traceback) -> None:
        before(kind, error, traceback)
        if not isinstance(error, GroupError):
            return
        code = functions().ddp_report_failure(f"ddp_runtime.GroupError: {error}".encode(), -1 if error.rank is None else error.rank)
        if code == 1:
            return  # as Python leaves
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    hook.is_of_ddp = True
    sys.excepthook = hook
