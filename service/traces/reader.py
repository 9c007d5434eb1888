"""Read a trace file: find out its format, leave out what is bad and say so, put the requests in order of time."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from service.traces import mooncake, sessions
from service.traces.base import BadLine, LineError, OnBadLine, Trace, TraceError, TraceRequest

MAX_LINE_BYTES = 64 << 20
"""Longest line that is read; a longer one is a bad line."""
MAX_REQUESTS = 10_000_000
_GZIP_MAGIC = b"\x1f\x8b"


class _Format(NamedTuple):
    name: str
    fields: frozenset[str]
    """A line that has all these is of this format."""
    read_line: Callable[[bytes], list[TraceRequest]]


_FORMATS = (
    _Format(sessions.NAME, frozenset({"block_size", "requests"}), sessions.read_line),
    _Format(mooncake.NAME, frozenset({"timestamp", "input_length", "hash_ids"}), mooncake.read_line),
)


def read_trace(
    path: Path,
    *,
    sessions_limit: int | None = None,
    requests_limit: int | None = None,
    on_bad_line: OnBadLine | None = None,
) -> Trace:
    """Read a trace, plain or gzip, of any known format (the first line tells).

    The requests of all lines are merged in order of time; of one time, those of an earlier line come first, and within
    a line the order of the line. A bad line is left out whole, counted, and told to ``on_bad_line``.

    Args:
        path: the file.
        sessions_limit: read only the first so many sessions of the file. Not for a format that knows no sessions.
        requests_limit: keep only the first so many requests, after merging.
        on_bad_line: told of every line that is left out.

    Raises:
        TraceError: see there. Damage in the middle of a compressed file counts as this too.
    """
    if any(limit is not None and limit < 1 for limit in (sessions_limit, requests_limit)):
        raise ValueError("a limit is at least 1")
    counted = _Counted(on_bad_line)
    try:
        requests, chosen, session_count = _read(path, sessions_limit, counted)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot read {path}: {error}") from None
    if not requests:
        left_out = f"; all of its {counted.bad_lines} lines are bad" if counted.bad_lines else ""
        raise TraceError(f"{path} holds no request{left_out}")
    requests.sort(key=lambda request: request.time_seconds)
    return Trace(
        name=path.name.removesuffix(".gz").removesuffix(".jsonl"),
        format=chosen.name,
        block_tokens=requests[0].block_tokens,
        requests=tuple(requests[:requests_limit]),
        sessions=session_count,
        bad_lines=counted.bad_lines,
    )


class _Counted:
    """Tells of bad lines and counts them."""

    def __init__(self, tell: OnBadLine | None) -> None:
        self.bad_lines = 0
        self._tell = tell

    def __call__(self, number: int, reason: str) -> None:
        self.bad_lines += 1
        if self._tell:
            self._tell(BadLine(number, reason))


def _read(path: Path, sessions_limit: int | None, bad: _Counted) -> tuple[list[TraceRequest], _Format, int]:
    requests: list[TraceRequest] = []
    chosen: _Format | None = None
    seen: set[str] = set()
    with _open(path) as file:
        for number, line in _lines(file, bad):
            if chosen is None:
                chosen = _format_of(path, line)
                if sessions_limit is not None and chosen.name != sessions.NAME:
                    raise TraceError(f"{path} is of the {chosen.name} format, which knows no sessions to choose from")
            if sessions_limit is not None and len(seen) >= sessions_limit:
                break
            try:
                more = chosen.read_line(line)
                _check_fits(more, requests, seen)
            except LineError as error:
                bad(number, str(error))
                continue
            requests += more
            seen.update(request.session for request in more[:1] if request.session is not None)
            if len(requests) > MAX_REQUESTS:
                raise TraceError(f"{path} holds more than {MAX_REQUESTS} requests")
    if chosen is None:
        raise TraceError(f"{path} is empty")
    return requests, chosen, len(seen)


def _check_fits(more: list[TraceRequest], before: list[TraceRequest], seen: set[str]) -> None:
    """A line must have the block size of the lines before it, and a session of its own."""
    if not more:
        raise LineError("a session without requests")
    if before and more[0].block_tokens != before[0].block_tokens:
        raise LineError(f"block size {more[0].block_tokens}, but {before[0].block_tokens} in the lines before it")
    if more[0].session in seen:
        raise LineError(f"session {more[0].session!r} was there before")


def _open(path: Path) -> BinaryIO:
    file = path.open("rb")
    compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0, os.SEEK_SET)
    if not compressed:
        return file
    file.close()
    return cast("BinaryIO", gzip.open(path, "rb"))


def _lines(file: BinaryIO, bad: _Counted) -> Iterator[tuple[int, bytes]]:
    """Every line that is not empty, with its number from 1. A line over the bound is passed over as bad."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            bad(number, f"longer than {MAX_LINE_BYTES} bytes")
        elif line.strip():
            yield number, line


def _format_of(path: Path, line: bytes) -> _Format:
    """The format of a trace, from its first line."""
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{path} is no trace: its first line is no JSON ({error})") from None
    for known in _FORMATS:
        if isinstance(fields, dict) and known.fields <= fields.keys():
            return known
    expected = "; ".join(f"{known.name}: {', '.join(sorted(known.fields))}" for known in _FORMATS)
    raise TraceError(f"{path} is no trace of a known format. The first line has, by format, the fields {expected}")
