"""Who trains what in overlap.sh."""
import os
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2


@dataclass
class Net:
    name: str
    width: int
    layers: int
    batch: int
    blocks: int

    def parameters(self):
        return self.layers * self.width * (self.width + 1)


# Small batches: Debian's torch multiplies with the reference BLAS.
NETS = [Net("10 M", 1024, 10, 4, 4), Net("60 M", 2048, 14, 4, 2)]
QUICK_NETS = [Net("0.1 M", 128, 6, 16, 3)]
OURS, COPIES, VIEWS = "ddp", "PyTorch", "PyTorch, gradients as bucket views"
OFF = "ddp, one bucket"  # sent when backward is through: no overlap
LABELS = [OURS, OFF, COPIES, VIEWS]


def command(label, net, args, python):
    words = [str(word) for word in (net.width, net.layers, net.batch, net.blocks)]
    launch = [f"{args.bin}/ddp-launch", f"--nproc_per_node={RANKS}", "--"]
    if label in (OURS, OFF):
        mode = "buckets" if label == OURS else "one-bucket"
        return launch + [f"{args.programs}/ddp-torch-overlap", *words, mode]
    mode = "views" if label == VIEWS else "copies"
    return launch + [python, f"{HERE}/torch_overlap.py", *words, mode]
