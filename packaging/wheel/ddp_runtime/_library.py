"""libddp.so, whose C interface is declared in ddp/ddp.h."""
import ctypes
import functools
import pathlib


class GroupError(RuntimeError):
    """What ddp has to say; `kind` is of ddp_status, `rank` that of the job which it is due to, or None."""

    KINDS = ("", "error", "usage", "system", "timeout", "peer", "backend", "checkpoint", "memory")

    def __init__(self, message: str, status: int, rank: int) -> None:
        super().__init__(message)
        self.kind = self.KINDS[status] if 0 <= status < len(self.KINDS) else "error"
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


def get_buffer(view: memoryview, buffer: PyBuffer) -> None:
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)


def release_buffer(buffer: PyBuffer) -> None:
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


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


def call(name: str, *arguments) -> None:
    """Of a function that returns a ddp_status."""
    library = functions()
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise GroupError(library.ddp_last_error().decode(errors="replace"), status, library.ddp_last_error_rank())
