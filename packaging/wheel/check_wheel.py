"""check_wheel.py WHEEL GLIBC: whether what its programs need is there on each host with that glibc or a later one.

They are ELF files that need no library but glibc's, and no symbol of a version above GLIBC's; and the wheel has at most 4 MB."""
import io
import re
import sys
import zipfile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

MOST_BYTES = 4_000_000
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2"}


def as_numbers(version):
    return tuple(int(part) for part in version.split("."))


def faults_of(name, elf, most):
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags("DT_NEEDED"):
                if tag.needed not in GLIBC and not re.fullmatch(r"ld-linux.*\.so\.\d", tag.needed):
                    yield f"{name} needs {tag.needed}"
            for kind in ("DT_RPATH", "DT_RUNPATH"):
                if any(section.iter_tags(kind)):
                    yield f"{name} has a path for libraries"
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for version in versions:
                    number = re.fullmatch(r"GLIBC_([\d.]+)", version.name)
                    if not number or as_numbers(number.group(1)) > most:
                        yield f"{name} needs {version.name}"
        if section.name.startswith(".debug"):
            yield f"{name} has debugging information"


def main(path, glibc):
    programs, faults = 0, []
    with zipfile.ZipFile(path) as wheel:
        size = sum(info.compress_size for info in wheel.infolist())
        for info in wheel.infolist():
            content = wheel.read(info)
            if not content.startswith(b"\x7fELF"):
                continue
            programs += 1
            faults += faults_of(info.filename, ELFFile(io.BytesIO(content)), as_numbers(glibc))
    if programs == 0:
        faults.append("it has no program")
    if size > MOST_BYTES:
        faults.append(f"it has {size} bytes, more than {MOST_BYTES}")
    for fault in faults:
        print(f"{path}: {fault}", file=sys.stderr)
    return 1 if faults else 0


sys.exit(main(*sys.argv[1:]))
