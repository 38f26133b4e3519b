"""torchrun, with one repair: the one of PyTorch 1.13 ends at once on Python 3.11, whose flags leave
out the zero when they are listed."""
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api


def from_str(text):
    if ":" not in text:
        return api.Std(int(text))
    return {int(rank): api.Std(int(std))
            for rank, std in (pair.split(":") for pair in text.split(","))}


api.Std.from_str = from_str
run.main()
