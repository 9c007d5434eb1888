"""Time and processor time, as the cases take them."""

import os
import statistics
import time
from collections.abc import Callable

GB = 1e9


def rate_gb_s(transfer: Callable[[], int], seconds: float, *, before: Callable[[], object] | None = None) -> float:
    """Repeat a transfer for at least so long, once at least; returns GB/s. ``transfer`` returns the bytes it moved.

    What is done ``before`` each one is not counted.
    """
    moved, elapsed = 0, 0.0
    while True:
        if before is not None:
            before()
        started = time.perf_counter()
        moved += transfer()
        elapsed += time.perf_counter() - started
        if elapsed >= seconds:
            return moved / elapsed / GB


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """The mean time of a call, repeated for at least so long."""
    count = 0
    started = time.perf_counter()
    while True:
        call()
        count += 1
        elapsed = time.perf_counter() - started
        if elapsed >= seconds:
            return elapsed / count * 1000


def median_us(call: Callable[[], object], seconds: float) -> float:
    """The median time of a call, of as many as there are in so long: what interrupts a few of them is not theirs."""
    times: list[float] = []
    started = time.perf_counter()
    while not times or time.perf_counter() - started < seconds:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def cpu_seconds(process: int | None = None) -> float:
    """Processor time that a process, this one by default, has used in all its threads."""
    # The kernel's own name for another process's clock; see clock_getcpuclockid(3).
    return time.clock_gettime((~(process or os.getpid()) << 3) | 2)


def resident_bytes(process: int, field: str = "VmRSS") -> int:
    """A process's memory, as ``/proc`` has it: ``VmRSS`` now, ``VmHWM`` at the most."""
    with open(f"/proc/{process}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{field}:"))
