"""What the benchmark scripts ask of this host: its description, and no process left behind."""

import datetime
import os
import platform
import signal
import subprocess
import time

MARK = "DDP_PEERS_RUN"


def processes_of(mark):
    """Those that carry the mark in their environment, wherever they went."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            pass  # gone, or not ours
    return found


def kill_all(mark):
    while left := processes_of(mark):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)


def output_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def package_version(name):
    return output_of(["dpkg-query", "-W", "-f", "${Version}", name]).strip() or "?"


def cpu_model():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


MAKERS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


def cpu_maker():
    """AMD, Intel, or else the kind of processor: a word."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("vendor_id"):
                vendor = line.split(":", 1)[1].strip()
                return MAKERS.get(vendor, vendor)
    return platform.machine()


def host_facts():
    return {
        "date": datetime.date.today().isoformat(), "cpu": cpu_model(),
        "maker": cpu_maker(),
        "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "compiler": output_of(["g++", "-dumpfullversion"]).strip(),
    }


def describe_host(facts):
    return (f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, "
            f"Linux {facts['kernel']}, GCC {facts['compiler']}")
