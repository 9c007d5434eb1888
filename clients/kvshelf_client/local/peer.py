"""A conversation with the local face, from the client's side."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kvshelf_client.answers import LocalAddress
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import FrameError, KvshelfError
from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, unpack_header
from kvshelf_client.http.steps import Steps
from kvshelf_client.local.address import connect, peer_user
from kvshelf_client.local.channel import Channel, close_all
from kvshelf_client.local.segments import Segment, Segments
from kvshelf_client.local.wire import (
    FILE,
    KEY,
    LENGTH,
    MAX_RANGES_BYTES,
    MAX_TEXT_BYTES,
    SHARD,
    Header,
    Kind,
    Open,
    Range,
    Read,
    Refusal,
    pack_hello,
    pack_open,
    pack_read,
    pack_renew,
    unpack_alive,
    unpack_ranges,
    unpack_refusal,
)
from kvshelf_client.words import Provenance

_PROVENANCES = {int(one): one for one in Provenance}
_SUPERUSER = 0


class Receiver(Protocol):
    """Where frames go: the part of a :class:`Sink <kvshelf_client.transport.Sink>` that matters here."""

    def begin(self, header: FrameHeader) -> memoryview:
        """See :meth:`Sink.begin <kvshelf_client.transport.Sink.begin>`."""
        ...

    def end(self) -> bool:
        """See :meth:`Sink.end <kvshelf_client.transport.Sink.end>`."""
        ...


class RefusedError(KvshelfError):
    """The local face does not do what it was asked."""

    def __init__(self, reason: Refusal, text: str) -> None:
        self.reason = reason
        super().__init__(text)


@dataclass(slots=True)
class Opened:
    """The blocks of a lease in order: what each is, and the segment it is in.

    ``fell_back`` says that they are the fallback's.
    """

    fell_back: bool = False
    ranges: list[Range] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def first_of(self, shard: int) -> int:
        """Where the blocks of a shard begin."""
        return next(index for index, one in enumerate(self.ranges) if one[SHARD] == shard)


def header_of(one: Range) -> FrameHeader:
    """What a range says of its block, as the header of a frame."""
    key, _, length, generation, checksum, end_tokens, shard, _, provenance = one
    return FrameHeader(FrameKind.BLOCK, key, length, checksum, _PROVENANCES[provenance], shard, end_tokens, generation)


class Peer:
    """One conversation, in steps, one user at a time. An error ends it, but for a refusal that says it does not.

    Every method raises OSError (TimeoutError when the deadline is over), FrameError or RefusedError.

    Args:
        channel: connected to the local face; takes descriptors.
        max_payload_bytes: a frame that announces more is refused before memory is taken for it.
    """

    def __init__(self, channel: Channel, max_payload_bytes: int) -> None:
        self.channel = channel
        self._max_payload_bytes = max_payload_bytes

    def open(self, ask: Open, sink: Receiver, segments: Segments, deadline: Deadline) -> Steps[Opened]:
        """Ask where the blocks of a lease are. What is no block comes with the answer, into ``sink``."""
        yield from self.channel.send(Kind.OPEN, [pack_open(ask)], deadline)
        header, descriptors = yield from self.channel.receive_header(deadline)
        if header.kind is Kind.FRAMES:
            close_all(descriptors)
            yield from self._take_frames(header.length_bytes, sink, deadline)
            header, descriptors = yield from self.channel.receive_header(deadline)
        opened = Opened()
        while True:
            files = segments.take(descriptors)
            body = yield from self._body(header, Kind.RANGES, MAX_RANGES_BYTES, deadline)
            part = unpack_ranges(body, len(files))
            opened.fell_back = part.fell_back
            opened.ranges += part.ranges
            opened.segments += [files[one[FILE]] for one in part.ranges]
            if part.is_last:
                return opened
            header, descriptors = yield from self.channel.receive_header(deadline)

    def read(self, lease_id: str, opened: Opened, numbers: range, sink: Receiver, deadline: Deadline) -> Steps[None]:
        """Let the service read blocks of one shard, by where they are in ``opened``, and send them, into ``sink``."""
        expected = opened.ranges[numbers.start : numbers.stop]
        shard = expected[0][SHARD]
        ask = Read(lease_id, shard, numbers.start - opened.first_of(shard), len(numbers), opened.fell_back)
        yield from self.channel.send(Kind.READ, [pack_read(ask)], deadline)
        header, descriptors = yield from self.channel.receive_header(deadline)
        close_all(descriptors)
        if header.kind is not Kind.FRAMES:
            yield from self._body(header, Kind.FRAMES, MAX_TEXT_BYTES, deadline)
        yield from self._take_frames(header.length_bytes, sink, deadline, expected)

    def renew(self, lease_id: str, deadline: Deadline) -> Steps[float]:
        """Let a lease live on; an answer proves that it has lived until now. Returns its life from now in seconds."""
        yield from self.channel.send(Kind.RENEW, [pack_renew(lease_id)], deadline)
        return unpack_alive((yield from self.short_answer(Kind.ALIVE, deadline)))

    def short_answer(self, kind: Kind, deadline: Deadline) -> Steps[bytearray]:
        """The body of a short message of a kind."""
        header, descriptors = yield from self.channel.receive_header(deadline)
        close_all(descriptors)
        return (yield from self._body(header, kind, MAX_TEXT_BYTES, deadline))

    def _take_frames(
        self, length_bytes: int, sink: Receiver, deadline: Deadline, expected: Sequence[Range] = ()
    ) -> Steps[None]:
        """Read frames of so many bytes in all; where blocks are expected they must be those."""
        head, count = bytearray(HEADER_BYTES), 0
        while length_bytes:
            yield from self.channel.read_into(memoryview(head), deadline)
            header = unpack_header(head)
            length_bytes -= HEADER_BYTES + header.length_bytes
            if length_bytes < 0 or header.length_bytes > self._max_payload_bytes:
                raise FrameError(f"a payload of {header.length_bytes} bytes is more than there may be")
            if expected and not (count < len(expected) and _is_of(header, expected[count])):
                raise FrameError("another block than the one that was asked for")
            count += 1
            yield from self.channel.read_into(sink.begin(header), deadline)
            sink.end()
        if count < len(expected):
            raise FrameError(f"{len(expected)} blocks were asked for, {count} came")

    def _body(self, header: Header, kind: Kind, limit_bytes: int, deadline: Deadline) -> Steps[bytearray]:
        """The body of a message that should be of a kind."""
        body = yield from self.channel.read_body(header, max(limit_bytes, MAX_TEXT_BYTES), deadline)
        if header.kind is Kind.REFUSED:
            raise RefusedError(*unpack_refusal(body))
        if header.kind is not kind:
            raise FrameError(f"{kind.name} was to come, not {header.kind.name}")
        return body


def greet(address: LocalAddress, token: str | None, max_payload_bytes: int, deadline: Deadline) -> Steps[Peer]:
    """Connect, see who is there, and say hello; nothing is sent to a process of another user. Raises as a peer does."""
    sock = connect(Path(address.socket))
    peer = Peer(Channel(sock, takes_descriptors=True), max_payload_bytes)
    try:
        if peer_user(sock) not in (_SUPERUSER, os.geteuid()):
            raise PermissionError(f"{address.socket} is served by another user")
        with suppress(BrokenPipeError):  # Who hangs up at once has said why.
            yield from peer.channel.send(Kind.HELLO, [pack_hello(address.instance, token)], deadline)
        if (yield from peer.short_answer(Kind.WELCOME, deadline)) != address.instance:
            raise FrameError("another instance answers")
    except BaseException:  # whatever it was, nobody else closes it
        peer.channel.close()
        raise
    return peer


def _is_of(header: FrameHeader, expected: Range) -> bool:
    """Whether a frame is of the block that was asked for, be it a miss."""
    return (header.kind, header.key, header.length_bytes, header.shard) == (
        FrameKind.BLOCK,
        expected[KEY],
        expected[LENGTH],
        expected[SHARD],
    )
