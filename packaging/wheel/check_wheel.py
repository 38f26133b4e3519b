"""check_wheel.py WHEEL GLIBC PROCESSOR PROGRAM...: whether it has these programs and no others, and what they need is there on
each host with that processor and that glibc, or a later one.

They are ELF files that need no library but glibc's, and no symbol of a version above GLIBC's; auditwheel takes the tag for right;
the licences of what is within are there; and the wheel has at most 4 MB."""
import io
import json
import re
import subprocess
import sys
import zipfile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

MOST_BYTES = 4_000_000
LICENCES = {"LICENSE", "boost", "libspdlog-dev", "libfmt-dev", "nlohmann-json3-dev", "libcxx", "libcxxabi", "libunwind"}
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2"}
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def as_numbers(version):
    return tuple(int(part) for part in version.split("."))


def faults_of(name, elf, most, processor):
    if elf["e_machine"] != MACHINES[processor]:
        yield f"{name} is for {elf['e_machine']}"
    if not any(isinstance(section, GNUVerNeedSection) for section in elf.iter_sections()):
        yield f"{name} does not say which glibc it needs"
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


def faults_of_tag(path, most, processor):
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", "--json", path], stdout=subprocess.PIPE)
    if shown.returncode != 0:
        yield "auditwheel cannot read it"
        return
    tag = json.loads(shown.stdout)["overall_tag"]
    found = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{processor}", tag)
    if not found or (int(found.group(1)), int(found.group(2))) > most:
        yield f"auditwheel would call it {tag}"


def main(path, glibc, processor, *programs):
    most, found, licences, faults = as_numbers(glibc), [], set(), []
    with zipfile.ZipFile(path) as wheel:
        size = sum(info.compress_size for info in wheel.infolist())
        for info in wheel.infolist():
            content = wheel.read(info)
            name = info.filename.rsplit("/", 1)[-1]
            if "/licenses/" in info.filename and content:
                licences.add(name)
            if not content.startswith(b"\x7fELF"):
                continue
            found.append(name)
            if info.external_attr >> 16 & 0o777 != 0o755:
                faults.append(f"{name} is no program by its mode")
            faults += faults_of(name, ELFFile(io.BytesIO(content)), most, processor)
    if sorted(found) != sorted(programs):
        faults.append(f"its programs are {found}")
    wanted = LICENCES - {"boost"} if programs == ("libddp.so",) else LICENCES
    if licences != wanted:
        faults.append(f"the licences {wanted ^ licences} are missing, or not known here")
    if size > MOST_BYTES:
        faults.append(f"it has {size} bytes, more than {MOST_BYTES}")
    faults += faults_of_tag(path, most, processor)
    for fault in faults:
        print(f"{path}: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
