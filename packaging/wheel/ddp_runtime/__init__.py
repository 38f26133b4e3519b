"""A rank of a job, for Python programs without PyTorch: its group and collectives, over ddp's C interface.

    group = ddp_runtime.init_process_group()
    group.all_reduce(gradients, "avg")         # any writable array that is contiguous: NumPy's, array.array, a memoryview
    group.publish_progress(step)

Run it by `ddp-launch --nproc-per-node=2 program.py`; alone it is a world of one.
"""
import ctypes
import os
import sys
from typing import Optional, Union

from ddp_runtime import _library
from ddp_runtime._library import GroupError, int32

__all__ = ["GroupError", "ProcessGroup", "Work", "init_process_group", "version"]

_OPERATIONS = {name: number for number, name in enumerate(("sum", "avg", "min", "max", "product", "bit_and", "bit_or", "bit_xor"))}
# Of the buffer protocol, by size: C's integers are of several lengths.
_DTYPES = {("f", 4): 0, ("f", 8): 1, ("i", 4): 2, ("i", 8): 3, ("u", 1): 4, ("f", 2): 5, ("i", 1): 7, ("i", 2): 8, ("b", 1): 9}
_KINDS = {**dict.fromkeys("bhilqn", "i"), "B": "u", **dict.fromkeys("efd", "f"), "?": "b"}


def version() -> str:
    """Of the library, such as "0.1.0"."""
    return _library.functions().ddp_version().decode()


class _Array:
    """A caller's memory as a ddp_tensor; it stays where it is while this lives."""

    def __init__(self, array, is_written: bool = True) -> None:
        self.view = memoryview(array)
        if not self.view.c_contiguous:
            raise ValueError("the array is not contiguous")
        if self.view.readonly and is_written:
            raise ValueError("the array is read-only")
        code = self.view.format.lstrip("@=<")
        dtype = _DTYPES.get((_KINDS.get(code), self.view.itemsize))
        if dtype is None:
            raise ValueError(
                f"arrays of type {self.view.format!r} cannot be sent: "
                "float16, float32, float64, int8, int16, int32, int64, uint8 and bool can"
            )
        count = self.view.nbytes // self.view.itemsize
        self.tensor = _library.Tensor(_library.address_of(self.view) if count else None, count, dtype, 0)


def _operation(name: str) -> int:
    if name not in _OPERATIONS:
        raise ValueError(f"there is no operation {name!r}; there are: {', '.join(_OPERATIONS)}")
    return _OPERATIONS[name]


_files = {}  # names that the library keeps pointers to


def _line():
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    name = frame.f_code.co_filename
    return _files.setdefault(name, ctypes.create_string_buffer(name.encode(errors="replace"))), frame.f_lineno


_in_flight = {}  # the works that nobody has waited for, and their arrays, whatever becomes of their objects


class Work:
    """A collective that has been started; the arrays are its own until wait() has returned."""

    def __init__(self, group, arrays) -> None:
        self._handle, self._group, self._process = ctypes.c_void_p(), group, os.getpid()
        _in_flight[id(self._handle)] = (self._handle, arrays)

    def is_completed(self) -> bool:
        return not self._is_open() or _library.functions().ddp_work_is_completed(self._handle) == 1

    def wait(self) -> None:
        """Returns when it is done on this rank; raises what went wrong, once."""
        if self._is_open():
            self._group._block("ddp_wait", *self._give_up(), None)

    # The handle is the call's from then on, which holds the arrays, too.
    def _give_up(self):
        handle = ctypes.c_void_p(self._handle.value)
        handle.arrays = _in_flight[id(self._handle)]
        self._handle.value = None
        del _in_flight[id(self._handle)]
        return (handle,)

    def _is_open(self) -> bool:
        return bool(self._handle) and self._process == os.getpid()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None:
            return
        if self._is_open() and not self._group._is_lost:
            _library.functions().ddp_wait(*self._give_up(), None)
        elif not self._handle:
            _in_flight.pop(id(self._handle), None)  # it was not started


class ProcessGroup:
    """The ranks of a job. All of them start the same collectives in the same order; arrays are changed in place.

    Each collective blocks; with `wait=False` it returns a Work at once. Several threads need an order of their own. Where an exception
    of a signal handler, as KeyboardInterrupt, has ended a call the group is lost: it ends with the process.
    """

    def __init__(self, handle) -> None:
        self._handle, self._process, self._is_lost = handle, os.getpid(), False

    @property
    def rank(self) -> int:
        return _library.functions().ddp_group_rank(self._open())

    @property
    def size(self) -> int:
        return _library.functions().ddp_group_size(self._open())

    @property
    def local_rank(self) -> int:
        return _library.functions().ddp_group_local_rank(self._open())

    @property
    def local_size(self) -> int:
        return _library.functions().ddp_group_local_size(self._open())

    @property
    def backend(self) -> str:
        return _library.functions().ddp_group_backend(self._open()).decode()

    def publish_progress(self, step: int, steps_per_second: float = 0.0) -> None:
        """Tells ddp-launch how far this rank is; a rate of 0 is not known."""
        if not -(2**63) <= step < 2**63:
            raise ValueError(f"step is {step}, no number of 64 bits")
        handle = self._open()
        _library.functions().ddp_set_call_site(*_line())
        _library.functions().ddp_publish_progress(handle, step, steps_per_second)

    def all_reduce(self, array, op: str = "sum", *, wait: bool = True) -> Optional[Work]:
        return self._collective("ddp_all_reduce", (_Array(array),), (_operation(op),), wait)

    def reduce(self, array, output=None, root: int = 0, op: str = "sum", *, wait: bool = True) -> Optional[Work]:
        """`output`: on root only; None: `array` itself."""
        arrays = (_Array(array, False), self._at_root(array if output is None else output, root))
        return self._collective("ddp_reduce", arrays, (int32(root, "root"), _operation(op)), wait)

    def broadcast(self, array, root: int = 0, *, wait: bool = True) -> Optional[Work]:
        return self._collective("ddp_broadcast", (_Array(array, self.rank != root),), (int32(root, "root"),), wait)

    def all_gather(self, array, output, *, wait: bool = True) -> Optional[Work]:
        """`output`: size times the elements of `array`, by rank."""
        return self._collective("ddp_all_gather", (_Array(array, False), _Array(output)), (), wait)

    def gather(self, array, output=None, root: int = 0, *, wait: bool = True) -> Optional[Work]:
        """`output`: on root only, as all_gather's."""
        return self._collective("ddp_gather", (_Array(array, False), self._at_root(output, root)), (int32(root, "root"),), wait)

    def scatter(self, array, output, root: int = 0, *, wait: bool = True) -> Optional[Work]:
        """`array`: on root only, size times the elements of `output`; None elsewhere."""
        if array is None and self.rank == root:
            raise ValueError("root has to give an array")
        given = _Array(b"" if array is None else array, False)
        return self._collective("ddp_scatter", (given, _Array(output)), (int32(root, "root"),), wait)

    def reduce_scatter(self, array, output, op: str = "sum", *, wait: bool = True) -> Optional[Work]:
        return self._collective("ddp_reduce_scatter", (_Array(array, False), _Array(output)), (_operation(op),), wait)

    def all_to_all(self, array, output, *, wait: bool = True) -> Optional[Work]:
        return self._collective("ddp_all_to_all", (_Array(array, False), _Array(output)), (), wait)

    def send(self, array, to: int, *, wait: bool = True) -> Optional[Work]:
        return self._collective("ddp_send", (_Array(array, False),), (int32(to, "to"),), wait)

    def recv(self, array, source: int, *, wait: bool = True) -> Optional[Work]:
        return self._collective("ddp_recv", (_Array(array),), (int32(source, "source"),), wait)

    def barrier(self) -> None:
        self._block("ddp_barrier", self._open())

    def split(self, color: int, key: int = 0) -> "ProcessGroup":
        """Ranks of equal color form a group, ordered by key, then by rank. Collective."""
        part = ctypes.c_void_p()
        self._block("ddp_group_split", self._open(), int32(color, "color"), int32(key, "key"), ctypes.byref(part))
        return ProcessGroup(part)

    def close(self) -> None:
        """Waits for what is in flight and ends the group; so does `with`."""
        handle, self._handle = self._handle, None
        if handle is not None and self._process == os.getpid() and not self._is_lost:
            _library.functions().ddp_group_destroy(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _open(self):
        if self._handle is None:
            raise ValueError("the group is closed")
        if self._process != os.getpid():
            raise ValueError("the group is another process's, which this one is a fork of")
        if self._is_lost:
            raise ValueError("the group is lost: an exception has ended a call of it before its time")
        return self._handle

    def _block(self, name, *arguments) -> None:
        try:
            _library.call_blocking(name, *arguments, line=_line())
        except GroupError:
            raise
        except BaseException:
            self._is_lost = True
            raise

    def _at_root(self, output, root) -> _Array:
        if output is None and self.rank == root:
            raise ValueError("root has to give an output")
        return _Array(b"" if output is None else output, self.rank == root)

    def _collective(self, name, arrays, arguments, wait) -> Optional[Work]:
        handle = self._open()
        tensors = [array.tensor for array in arrays]
        if wait:
            out = ctypes.POINTER(ctypes.c_void_p)()
            out.arrays = arrays  # the call holds them
            self._block(name, handle, *tensors, *arguments, None, out)
            return None
        work = Work(self, arrays)
        _library.call(name, handle, *tensors, *arguments, None, ctypes.byref(work._handle), line=_line())
        return work


def init_process_group(backend: str = "automatic", timeout: Union[int, float] = 600) -> ProcessGroup:
    """Joins the job that ddp-launch, torchrun, mpiexec or srun has started this process in; alone a world of one.

    backend: "shm" on one host, "gloo" between several, where the library has it; timeout: seconds, of this call and each collective.
    Raises GroupError; returns when all ranks are there.
    """
    handle = ctypes.c_void_p()
    _library.leave_because_of_peers()
    _library.call_blocking("ddp_init_process_group", f"backend={backend},timeout={timeout}".encode(), ctypes.byref(handle))
    return ProcessGroup(handle)
