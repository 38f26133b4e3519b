"""Runs the programs of export_programs on PyTorch's DistributedDataParallel and compares gradients with
those that are expected of ddp's. Every rank reads the same file. Run under ddp-launch."""
import contextlib
import json
import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    """Whose gradients are the amounts it is called with; None leaves a parameter out of the graph."""

    def __init__(self, sizes):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(size)) for size in sizes])

    def forward(self, amounts):
        return sum((p * amount).sum() for p, amount in zip(self.all, amounts) if amount is not None)


class Program:
    def __init__(self, plan):
        self.plan = plan
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.groups = [dist.new_group(list(range(self.ranks))) for _ in range(plan["groups"])]
        self.models = [
            DistributedDataParallel(Net(model["sizes"]), process_group=self.groups[model["group"]],
                                    bucket_cap_mb=model["bucket_cap_mb"], gradient_as_bucket_view=model["views"],
                                    find_unused_parameters=model["find_unused"]) for model in plan["models"]
        ]

    def run(self):
        for number, step in enumerate(self.plan["steps"]):
            self.step(step, f"step {number}")
        if self.plan["joined"]:
            self.join(self.plan["joined"])
        for group in self.groups:
            dist.barrier(group)

    def zero(self):
        for model in self.models:
            model.zero_grad(set_to_none=False)

    def step(self, step, where):
        if step["zeroes"]:
            self.zero()
        metric = torch.full((40,), self.rank + 1.0)
        measuring, losses = [], []
        for number, (model, backward) in enumerate(zip(self.models, step["backwards"])):
            if number == step["metric"]:
                group = self.groups[step["metric_group"]]
                thread = threading.Thread(
                    target=lambda: measuring.append(dist.all_reduce(metric, group=group, async_op=True)))
                thread.start()
                thread.join()
            with model.no_sync() if backward["no_sync"] else contextlib.nullcontext():
                unused = backward["unused"][self.rank]
                amounts = backward["amounts"][self.rank]
                loss = model([None if out else amount for out, amount in zip(unused, amounts)])
                losses.append(loss)
                if not step["together"]:
                    loss.backward()
                    self.compare(number, backward, where)
        if step["together"]:
            sum(losses).backward()
            for number, backward in enumerate(step["backwards"]):
                self.compare(number, backward, where)
        for work in measuring:
            work.wait()
            assert metric[0].item() == self.ranks * (self.ranks + 1) / 2

    def join(self, joined):
        model = self.models[0]
        with model.join(divide_by_initial_world_size=joined["divide_by_initial_world_size"]):
            for number in range(joined["by_rank"][self.rank]):
                batch = joined["batches"][number]
                self.zero()
                model(batch["amounts"][self.rank]).backward()
                self.compare(0, batch, f"batch {number} in join")

    def compare(self, number, backward, where):
        for index, parameter in enumerate(self.models[number].module.all):
            expected = backward["expected"][self.rank][index]
            gradient = torch.zeros(1) if parameter.grad is None else parameter.grad
            if not torch.allclose(gradient, torch.full_like(gradient, expected), rtol=1e-4, atol=1e-4):
                raise SystemExit(f"seed {self.plan['seed']}, {where}, model {number}, parameter {index}: PyTorch has "
                                 f"{gradient[0].item()}, expected is {expected}")


def main():
    dist.init_process_group("gloo")
    count = 0
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            Program(json.loads(line)).run()
            count += 1
    print(f"rank {dist.get_rank()}: {count} programs alike", flush=True)
    dist.destroy_process_group()


main()
