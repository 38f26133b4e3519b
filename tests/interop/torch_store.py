"""torch's own TCPStore client against the launcher's store server: every method that its Python face has.
Run under ddp-launch with two ranks."""
import datetime
import os
import threading

import torch
from torch.distributed import PrefixStore, TCPStore

rank = int(os.environ["RANK"])


def connect():
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False,
                    datetime.timedelta(seconds=60), wait_for_workers=False)


base = connect()
store = PrefixStore("interop", base)


def meet(name):
    base.add(name, 1)
    while base.add(name, 0) < 2:
        pass


if rank == 0:
    store.set("late", b"value")
assert store.get("late") == b"value"  # waits on rank 1
meet("first")

assert store.add("sum", rank + 1) in (1, 2, 3)
meet("added")
assert store.add("sum", 0) == 3
assert store.get("sum") == b"3"

mine = f"mine{rank}"
assert base.compare_set(mine, "", "one") == b"one"
assert base.compare_set(mine, "wrong", "two") == b"one"
assert base.compare_set(mine, "one", "two") == b"two"
assert base.delete_key(mine) and not base.delete_key(mine)
assert base.num_keys() > 0

binary = bytes(range(256)) * 4096
base.set(f"binary{rank}", binary)
assert base.get(f"binary{1 - rank}") == binary

base.set_timeout(datetime.timedelta(milliseconds=100))
try:
    base.get("never")
    raise SystemExit("a key that nobody set was found")
except RuntimeError:
    pass

assert (base.host, base.port) == (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
inner = PrefixStore(mine, store)
assert inner.underlying_store.get("late") == b"value"
inner.set_timeout(datetime.timedelta(seconds=60))
inner.set("k", "v")
assert base.get(f"interop/{mine}/k") == store.get(f"{mine}/k") == inner.get("k") == b"v"
assert inner.compare_set("k", "v", "w") == b"w"
assert inner.compare_set("absent", "lie", "w") == b"lie"
assert inner.add("n", -7) == -7 and inner.add("n", 2**40) == 2**40 - 7
inner.wait(["k", "n"])
inner.wait(["k"], datetime.timedelta(seconds=60))
before = inner.num_keys()
assert inner.delete_key("k") and before > 0
inner.set("empty", "")
assert inner.get("empty") == b""

other = connect()
try:
    connect().wait(["never", "neither"], datetime.timedelta(milliseconds=100))
    raise SystemExit("keys that nobody set were found")
except RuntimeError:
    pass
threading.Timer(0.05, lambda: other.set(f"woken{rank}", b"x")).start()
base.wait([f"woken{rank}"], datetime.timedelta(seconds=60))
print(f"rank {rank}: torch {torch.__version__} store ok", flush=True)
meet("last")
