"""Buffers that are moved one behind the other, some of them at a time."""

from collections.abc import Sequence


def behind(buffers: Sequence[memoryview], done: int) -> list[memoryview]:
    """What is left of buffers when their first ``done`` bytes have been moved."""
    for index, buffer in enumerate(buffers):
        if done < buffer.nbytes:
            return [buffer[done:], *buffers[index + 1 :]]
        done -= buffer.nbytes
    return []
