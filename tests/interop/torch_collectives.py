"""Every collective that PyTorch has on Gloo, over groups of all and of some ranks, and a second process group
after the first is destroyed. Every rank checks its own results. Run under ddp-launch with four ranks; the
word after the script is how they meet: env:// or tcp://."""
import os
import sys

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert world == 4
assert dist.is_torchelastic_launched()
master = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
if sys.argv[1] == "env://":
    dist.init_process_group("gloo", init_method="env://")
else:
    dist.init_process_group("gloo", init_method="tcp://" + master, rank=rank, world_size=world)
assert (dist.get_rank(), dist.get_world_size()) == (rank, world)


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def same(got, *values):
    assert got.tolist() == list(values), (got, values)


for op, result in ((dist.ReduceOp.SUM, 10), (dist.ReduceOp.PRODUCT, 24), (dist.ReduceOp.MIN, 1),
                   (dist.ReduceOp.MAX, 4)):
    x = vector(rank + 1)
    dist.all_reduce(x, op)
    same(x, result)
x = vector(rank + 1)
work = dist.all_reduce(x, async_op=True)
work.wait()
same(x, 10)
pair = [vector(1), vector(2)]
dist.all_reduce_coalesced(pair)
same(torch.cat(pair), 4, 8)

x = vector(rank)
dist.broadcast(x, src=2)
same(x, 2)
x = vector(rank + 1)
dist.reduce(x, dst=1)
if rank == 1:
    same(x, 10)

parts = [vector(0) for _ in range(world)]
dist.all_gather(parts, vector(rank))
same(torch.cat(parts), 0, 1, 2, 3)
dist.gather(vector(rank * 10), parts if rank == 3 else None, dst=3)
if rank == 3:
    same(torch.cat(parts), 0, 10, 20, 30)
x = vector(-1)
dist.scatter(x, [vector(i * i) for i in range(world)] if rank == 0 else None, src=0)
same(x, rank * rank)
x = torch.zeros(world, dtype=torch.float64)
dist.all_to_all_single(x, vector(*(10 * rank + to for to in range(world))))
same(x, *(10 * source + rank for source in range(world)))

following, before = (rank + 1) % world, (rank - 1) % world
x = vector(-1)
sending = dist.isend(vector(rank), following)
dist.recv(x, before)
sending.wait()
same(x, before)
if rank == 0:
    senders = [dist.recv(x) for _ in range(1, world)]
    assert sorted(senders) == [1, 2, 3]
else:
    dist.send(vector(rank), 0)

dist.barrier()
dist.monitored_barrier()
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": i} for i in range(world)]
dist.gather_object(("from", rank), objects if rank == 2 else None, dst=2)
assert rank != 2 or objects == [("from", i) for i in range(world)]
objects = ["a", 1, None] if rank == 1 else [None] * 3
dist.broadcast_object_list(objects, src=1)
assert objects == ["a", 1, None]
mine = [None]
dist.scatter_object_list(mine, [f"for {i}" for i in range(world)] if rank == 0 else None, src=0)
assert mine == [f"for {rank}"]

halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
x = vector(rank)
dist.all_reduce(x, group=halves[rank // 2])
same(x, 1 if rank < 2 else 5)
dist.destroy_process_group(halves[rank // 2])
x = vector(1)
dist.all_reduce(x)
same(x, world)
dist.destroy_process_group()
assert not dist.is_initialized()

# Under one name the second group would find the first one's keys, as with torchrun's own agent store.
host, port = master.split(":")
store = dist.PrefixStore("second", dist.TCPStore(host, int(port), world, False))
dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
x = vector(rank)
dist.all_reduce(x)
same(x, 6)
dist.destroy_process_group()
print(f"rank {rank}: ok", flush=True)
