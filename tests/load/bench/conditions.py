"""Under which conditions a run took place: figures mean nothing without them."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("fastapi", "hiredis", "lmdb", "redis", "uvicorn", "uvloop", "xxhash")


def conditions() -> dict[str, object]:
    """Machine, load and versions, to be printed and kept with the results."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _said("git", "rev-parse", "--short", "HEAD") + ("+" if _said("git", "status", "--porcelain") else ""),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "load_before": [round(one, 2) for one in os.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "redis_server": _said("redis-server", "--version").partition("v=")[2].partition(" ")[0],
        **{name: _version(name) for name in _PACKAGES},
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
