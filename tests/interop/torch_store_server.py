"""torch's own TCPStore server and, as its client, the program given (store_client.cpp): each sees what the other
writes."""
import datetime
import subprocess
import sys

import torch
from torch.distributed import PrefixStore, TCPStore

minute = datetime.timedelta(seconds=60)
store = TCPStore("127.0.0.1", 0, 1, True, minute, wait_for_workers=False)
# Both clients write "/" before their keys, so that they mean the same ones.
store.set("from torch", "hello")
client = subprocess.Popen([sys.argv[1], "127.0.0.1", str(store.port)])
try:
    store.wait(["ready"], minute)
    store.set("late", "come")
    assert client.wait(60) == 0
finally:
    client.kill()
assert store.get("k") in (b"w", b"wx")
assert store.get("n") == b"42" and store.add("n", 1) == 43
assert store.get("binary") == bytes(range(256)) * 4096
assert PrefixStore("prefix", store).get("k") == b"w"
assert not store.delete_key("new")
print(f"torch {torch.__version__} served every method")
