"""torch_state_dict.py CONVERT FOLDER [CHECKPOINT]: what torch.save writes, our program reads and writes as safetensors and
as a .pth file, and Python reads again, with the same bits. With the folder of a CHECKPOINT of ours also Python's
safetensors takes part: it reads what we write, our program reads what it writes."""
import inspect
import json
import os
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict

import torch

convert, folder = sys.argv[1], sys.argv[2]
checkpoint = sys.argv[3] if len(sys.argv) > 3 else None
if checkpoint:
    import safetensors.torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
WAYS_TO_LOAD = [{}] + [way for way in ({"weights_only": False}, {"weights_only": True},
                                       {"weights_only": True, "mmap": True})
                       if way.keys() <= inspect.signature(torch.load).parameters.keys()]


def read_safetensors(path):
    """By the format's description alone."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype = DTYPES[entry["dtype"]]
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def bits(tensor):
    """NaNs with their payloads, and the sign of zero, too."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)


def same(expected, found):
    assert expected.keys() == found.keys(), (expected.keys(), found.keys())
    for name, tensor in expected.items():
        assert tensor.dtype == found[name].dtype and tensor.shape == found[name].shape, name
        assert torch.equal(bits(tensor), bits(found[name])), name


def run(source, name="converted.safetensors"):
    target = os.path.join(folder, name)
    return target, subprocess.run([convert, source, target], capture_output=True, text=True)


def load_written(state, source):
    """What torch.load reads, in each way that it has, of the .pth file that we write."""
    target, result = run(source, "written.pth")
    assert result.returncode == 0, result.stderr
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
    for way in WAYS_TO_LOAD:
        loaded = torch.load(target, **way)
        assert type(loaded) is OrderedDict and list(loaded) == list(state), (way, list(loaded))
        assert all(tensor.is_contiguous() and not tensor.requires_grad for tensor in loaded.values()), way
        same(state, loaded)
    return loaded


def check(state, source):
    target, result = run(source)
    assert result.returncode == 0, result.stderr
    same(state, read_safetensors(target))
    if checkpoint:
        same(state, safetensors.torch.load_file(target))


def like_newer_torch(source):
    """The same file with the members that torch 2 adds, in another archive name."""
    target = os.path.join(folder, "newer.pth")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            new.writestr("archive/" + entry.filename.split("/", 1)[1], old.read(entry))
        new.writestr("archive/byteorder", "little")
        new.writestr("archive/.format_version", "1")
        new.writestr("archive/.data/serialization_id", "0636067240000023018014470450000014470450")
    return target


def any_bits(shape, dtype):
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).to(dtype)
    width = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, 256, (*shape[:-1], shape[-1] * width), dtype=torch.uint8).view(dtype)


def random_tensor(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


torch.manual_seed(11)
path = os.path.join(folder, "state.pth")
states = [OrderedDict((name, random_tensor((3, 5), dtype)) for name, dtype in DTYPES.items())]
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 300))
states.append(net.state_dict())
states.append(torch.nn.DataParallel(net).state_dict())
states.append(OrderedDict((f"layer{i}.weight", torch.randn(7, i % 5)) for i in range(400)))  # LONG_BINPUT and empty ones
base = torch.arange(24.0).reshape(2, 3, 4)
tied = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
tied[1].weight = tied[0].weight
states.append(tied.state_dict())
states.append(OrderedDict((name, any_bits((5, 200), dtype)) for name, dtype in DTYPES.items()))
states.append({name: torch.ones(2) for name in (
    "", ".", "a/b", "a\nb\"\\", "a\0b", "\u00e9", "\u91cd\u307f", "\U0001f600", "_metadata", "cpu", "x" * 70000)})
states.append({f"empty {shape}": torch.empty(shape) for shape in ((0,), (0, 3), (3, 0, 70000), (2, 0, 2, 0))})
states.append(OrderedDict())
states.append({"permuted": base.permute(2, 0, 1), "slice": base[1, :, ::2], "scalar": torch.tensor(3.5), "base": base})
for state in states:
    torch.save(state, path)
    check(state, path)
    load_written(state, path)
    if int(torch.__version__.split(".")[0]) < 2:
        check(state, like_newer_torch(path))
    if checkpoint:
        own = os.path.join(folder, "own.safetensors")
        copies = {name: tensor.contiguous().clone() for name, tensor in state.items()}
        for metadata in (None, {"format": "pt", "by": "\u00e9\n\"quoted\""}):
            safetensors.torch.save_file(copies, own, metadata)
            check(state, own)

torch.save(net.state_dict(), path)
net.load_state_dict(load_written(net.state_dict(), path))
torch.save(tied.state_dict(), path)
loaded = load_written(tied.state_dict(), path)
assert loaded["0.weight"].data_ptr() == loaded["1.weight"].data_ptr(), "a tied weight was written twice"
fixtures = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../checkpoint/fixtures")
same(*(torch.load(os.path.join(fixtures, name)) for name in ("tensors.pth", "written.pth")))

refused = {"whole model": net, "set": {"a": {1, 2}}, "object": {"a": os.path}}
for name, what in refused.items():
    try:
        torch.save(what, path)
    except TypeError:  # a module cannot be pickled at all
        continue
    _, result = run(path)
    assert result.returncode == 1 and "no part of a state dictionary" in result.stderr, (name, result.stderr)
torch.save(net.state_dict(), path, _use_new_zipfile_serialization=False)
_, result = run(path)
assert result.returncode == 1 and "before 1.6" in result.stderr, result.stderr

if checkpoint:
    (written,) = (name for name in os.listdir(checkpoint) if name.endswith(".safetensors"))
    path = os.path.join(checkpoint, written)
    same(read_safetensors(path), safetensors.torch.load_file(path))
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "ddp"}, file.metadata()
        assert {name.split(".")[0] for name in file.keys()} == {"model", "optimizer"}, file.keys()
print(f"torch {torch.__version__}: {len(states)} states moved" +
      (f", both ways with safetensors {safetensors.__version__}" if checkpoint else ""))
