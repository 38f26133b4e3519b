"""What a worker tells its launcher of its progress, for the status line, metrics and `ddp-launch inspect`.

Into its page of the control region, whose layout is runtime/contract/control_page.hpp's and rank_page.hpp's.
"""
import ctypes
import fcntl
import mmap
import os
import stat
import struct

from ddp_launch._injection import Injection

_MAGIC = 0x6464705F6374726C
_VERSION = 4
_HEADER_BYTES = 4096
_PAGE_BYTES = 8192
_STEP = 8  # in the page; the rate is behind it
_F_SEAL_SHRINK = 2


class _Page:
    def __init__(self, region: mmap.mmap, offset: int) -> None:
        # Stored by one instruction each, as the launcher reads at any time.
        self.step = ctypes.c_int64.from_buffer(region, offset + _STEP)
        self.rate = ctypes.c_double.from_buffer(region, offset + _STEP + 8)
        self.injection = Injection()


def _find_page():
    """None: no ddp-launch has started this process, or not one that this module knows."""
    parts = os.environ.get("DDP_CONTROL_FD", "").split(":")
    try:
        descriptor, cookie, page = int(parts[0]), int(parts[1], 16), int(os.environ["DDP_CONTROL_PAGE"])
        status = os.fstat(descriptor)
        # Memory that somebody may still cut short would end this process later.
        if not stat.S_ISREG(status.st_mode) or not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _F_SEAL_SHRINK:
            return None
        region = mmap.mmap(descriptor, status.st_size)
        magic, version, pages, its_cookie, _, page_bytes = struct.unpack_from("<QIIQII", region)
    except (IndexError, KeyError, ValueError, OSError, OverflowError, struct.error):
        return None
    is_known = (magic, version, page_bytes, its_cookie) == (_MAGIC, _VERSION, _PAGE_BYTES, cookie)
    is_there = 0 <= page < pages and _HEADER_BYTES + pages * _PAGE_BYTES <= status.st_size
    return _Page(region, _HEADER_BYTES + page * _PAGE_BYTES) if is_known and is_there else None


_page = None
_is_looked_for = False


def publish_progress(step: int, steps_per_second: float = 0.0) -> bool:
    """Tells the launcher which step this worker has come to, and how many it does in a second (0: not known).

    For a training loop, each step: it takes a microsecond and waits for nothing. Returns whether there is a ddp-launch to tell.
    """
    global _page, _is_looked_for
    step, steps_per_second = int(step), float(steps_per_second)
    if not _is_looked_for:
        _page, _is_looked_for = _find_page(), True
    if _page is None:
        return False
    _page.injection.come_to(step)
    _page.step.value = step
    _page.rate.value = steps_per_second
    return True
