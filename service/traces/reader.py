"""Read a trace file: find out its format, leave out what is bad and say so, put the requests in order of time."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from service.traces import bailian, mooncake, plain, sessions
from service.traces.base import BadLine, LineError, LineReader, OnBadLine, Trace, TraceError, TraceRequest

MAX_LINE_BYTES = 64 << 20
"""Longest line that is read; a longer one is a bad line."""
MAX_REQUESTS = 10_000_000
_GZIP_MAGIC = b"\x1f\x8b"


class _Format(NamedTuple):
    name: str
    fields: frozenset[str]
    """A first line that has all these is of this format."""
    open_lines: Callable[[bytes], LineReader]
    """From the first line to a reader of all of them, or of all but the first where that is a header."""
    has_header: bool = False
    knows_sessions: bool = True
    is_session_a_line: bool = False


_FORMATS = (
    _Format(plain.NAME, plain.FIELDS, plain.open_lines, has_header=True),
    _Format(sessions.NAME, sessions.FIELDS, sessions.open_lines, is_session_a_line=True),
    _Format(bailian.NAME, bailian.FIELDS, bailian.open_lines),
    _Format(mooncake.NAME, mooncake.FIELDS, mooncake.open_lines, knows_sessions=False),
)
"""The one with more fields comes before one that has only some of them."""


def read_trace(
    path: Path,
    *,
    sessions_limit: int | None = None,
    requests_limit: int | None = None,
    strict: bool = False,
    on_bad_line: OnBadLine | None = None,
) -> Trace:
    """Read a trace, plain or gzip, of any known format (the first line tells).

    The requests of all lines are merged in order of time; of one time, those of an earlier line come first, and within
    a line the order of the line. A bad line is left out whole, counted, and told to ``on_bad_line``.

    Args:
        path: the file.
        sessions_limit: read only the first so many sessions of the file. Not for a format that knows no sessions.
        requests_limit: keep only the first so many requests, after merging.
        strict: stop at the first bad line.
        on_bad_line: told of every line that is left out.

    Raises:
        TraceError: see there. Damage in the middle of a compressed file counts as this too.
    """
    if any(limit is not None and limit < 1 for limit in (sessions_limit, requests_limit)):
        raise ValueError("a limit is at least 1")
    reading = _Reading(path, sessions_limit, strict=strict, tell=on_bad_line)
    try:
        found = reading.read()
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot read {path}: {error}") from None
    requests = reading.requests
    if not requests:
        left_out = f"; all of its {reading.bad_lines} lines are bad" if reading.bad_lines else ""
        raise TraceError(f"{path} holds no request{left_out}")
    requests.sort(key=lambda request: request.time_seconds)
    return Trace(
        name=path.name.removesuffix(".gz").removesuffix(".jsonl"),
        format=found.name,
        block_tokens=requests[0].block_tokens,
        requests=tuple(requests[:requests_limit]),
        sessions=len(reading.sessions),
        bad_lines=reading.bad_lines,
        generated=reading.generated,
    )


class _Reading:
    """A file being read: the requests so far, the sessions they are of, and how many lines were left out."""

    def __init__(self, path: Path, sessions_limit: int | None, *, strict: bool, tell: OnBadLine | None) -> None:
        self.requests: list[TraceRequest] = []
        self.sessions: set[str] = set()
        self.bad_lines = 0
        self.generated: object | None = None
        self._path, self._limit, self._strict, self._tell = path, sessions_limit, strict, tell

    def read(self) -> _Format:
        """Read it all, or up to the limit of sessions; returns what format it is of."""
        with _open(self._path) as file:
            lines = _lines(file, self._bad)
            first_number, first = next(lines, (0, b""))
            if not first_number:
                raise TraceError(f"{self._path} is empty")
            found, fields = _format_of(self._path, first)
            self.generated = fields.get("generated")
            if self._limit is not None and not found.knows_sessions:
                raise TraceError(f"{self._path} is of the {found.name} format, which knows no sessions to choose from")
            try:
                read_line = found.open_lines(first)
            except LineError as error:
                raise TraceError(f"{self._path}: {error}") from None
            for number, line in lines if found.has_header else chain([(first_number, first)], lines):
                if found.is_session_a_line and self._is_full():
                    break
                self._take(found, read_line, number, line)
        return found

    def _take(self, found: _Format, read_line: LineReader, number: int, line: bytes) -> None:
        try:
            more = read_line(line)
            self._check_fits(found, more)
        except LineError as error:
            self._bad(number, str(error))
            return
        session = more[0].session
        if session is not None and session not in self.sessions:
            if self._is_full():
                return
            self.sessions.add(session)
        self.requests += more
        if len(self.requests) > MAX_REQUESTS:
            raise TraceError(f"{self._path} holds more than {MAX_REQUESTS} requests")

    def _is_full(self) -> bool:
        return self._limit is not None and len(self.sessions) >= self._limit

    def _check_fits(self, found: _Format, more: list[TraceRequest]) -> None:
        """A line must have the block size of the lines before it, and where it is a session, one of its own."""
        if not more:
            raise LineError("a session without requests")
        if self.requests and more[0].block_tokens != self.requests[0].block_tokens:
            before = self.requests[0].block_tokens
            raise LineError(f"block size {more[0].block_tokens}, but {before} in the lines before it")
        if found.is_session_a_line and more[0].session in self.sessions:
            raise LineError(f"session {more[0].session!r} was there before")

    def _bad(self, number: int, reason: str) -> None:
        if self._strict:
            raise TraceError(f"{self._path}, line {number}: {reason}")
        self.bad_lines += 1
        if self._tell:
            self._tell(BadLine(number, reason))


def _open(path: Path) -> BinaryIO:
    file = path.open("rb")
    compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0, os.SEEK_SET)
    if not compressed:
        return file
    file.close()
    return cast("BinaryIO", gzip.open(path, "rb"))


def _lines(file: BinaryIO, bad: Callable[[int, str], None]) -> Iterator[tuple[int, bytes]]:
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


def _format_of(path: Path, line: bytes) -> tuple[_Format, dict[str, object]]:
    """The format of a trace, from its first line, and the fields of that."""
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{path} is no trace: its first line is no JSON ({error})") from None
    for known in _FORMATS:
        if isinstance(fields, dict) and known.fields <= fields.keys():
            return known, fields
    expected = "; ".join(f"{known.name}: {', '.join(sorted(known.fields))}" for known in _FORMATS)
    raise TraceError(f"{path} is no trace of a known format. The first line has, by format, the fields {expected}")
