"""Collectives of Python's objects, a sub-group, and messages between two ranks."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
gathered = [None] * world
dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
told = [{"from": 0} if rank == 0 else None]
dist.broadcast_object_list(told, src=0)
mine = [None]
dist.scatter_object_list(mine, [f"part {i}" for i in range(world)] if rank == 0 else None, src=0)
alone = dist.new_group([rank], use_local_synchronization=True)
number = torch.tensor([rank + 1.0])
dist.all_reduce(number, group=alone)
if rank == 0:
    dist.send(number, dst=world - 1)
elif rank == world - 1:
    dist.recv(number, src=0)
print(f"{rank} {gathered} {told} {mine} {number.item()}\n", end="", flush=True)
dist.destroy_process_group()
