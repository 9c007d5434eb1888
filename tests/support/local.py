"""The local face in this process, over an SSD tier, and clients that talk to it step by step."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kvshelf_client.answers import LocalAddress
from kvshelf_client.deadline import Deadline
from kvshelf_client.frames import Frame, FrameHeader, checksum_of
from kvshelf_client.http.steps import Steps, wait
from kvshelf_client.local.peer import Opened, Peer, greet
from kvshelf_client.local.segments import Segments
from kvshelf_client.local.wire import PROTOCOL_VERSION, Open
from kvshelf_client.steps import run
from service.access import Access
from service.local.server import LocalServer
from service.settings import load_settings
from service.shelf.parts import Parts
from storage.clock import ManualClock
from storage.ssd import SsdTier
from tests.support.service import make_parts

T = TypeVar("T")

BUDGET_BYTES = 16 << 20
MAX_PAYLOAD_BYTES = 1 << 24


def do(steps: Steps[T]) -> T:
    """Do steps in this thread."""
    return run(steps, wait)


def soon() -> Deadline:
    """A deadline that only a hang misses."""
    return Deadline(20)


@dataclass
class Collector:
    """A sink that keeps frames."""

    frames: list[Frame] = field(default_factory=list)
    sound: list[bool] = field(default_factory=list)

    def expect(self) -> None:
        """See :meth:`Sink.expect`: there is nothing to make ready."""

    def begin(self, header: FrameHeader) -> memoryview:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        self.frames.append(Frame(header, bytearray(header.length_bytes)))
        return memoryview(self.frames[-1].payload)

    def end(self) -> bool:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        header, payload = self.frames[-1]
        self.sound.append(checksum_of(payload) == header.checksum)
        return self.sound[-1]


@dataclass
class LocalFace:
    """A local face that runs, and its service."""

    parts: Parts
    server: LocalServer
    clock: ManualClock
    segments: Segments = field(default_factory=Segments)

    @property
    def address(self) -> LocalAddress:
        """Where it is, as the REST face would say."""
        return LocalAddress(PROTOCOL_VERSION, str(self.server.path), self.server.instance)

    def metrics(self) -> str:
        """The metrics as text."""
        return self.parts.metrics.render(lambda: None).decode()

    @contextmanager
    def peer(self, token: str | None = None) -> Iterator[Peer]:
        """A client that was welcomed."""
        peer = do(greet(self.address, token, MAX_PAYLOAD_BYTES, soon()))
        try:
            yield peer
        finally:
            peer.channel.close()

    def connect(self) -> socket.socket:
        """A bare connection."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(20)
        sock.connect(os.path.relpath(self.server.path))
        return sock

    def open(self, peer: Peer, lease_id: str, shard: int | None = None, *, fall_back: bool = False) -> Opened:
        """Open a lease; what comes beside blocks is not kept."""
        return do(peer.open(Open(lease_id, shard, fall_back), Collector(), self.segments, soon()))


def local_parts(directory: Path, clock: ManualClock, access: Access | None = None, **settings: object) -> Parts:
    """A service over an SSD tier of 16 MiB; ``settings`` are of the local path."""
    merged = load_settings(
        None, {"store": {"data_dir": str(directory), "budget_bytes": BUDGET_BYTES}, "local": settings}, environment={}
    )
    tier = SsdTier(directory / "shelf", clock=clock, ttl_seconds=merged.store.ttl_seconds, budget_bytes=BUDGET_BYTES)
    return make_parts(directory, clock, settings=merged, blocks=tier, access=access)


@contextmanager
def local_face(directory: Path, access: Access | None = None, **settings: object) -> Iterator[LocalFace]:
    """A local face of :func:`local_parts`."""
    clock = ManualClock()
    parts = local_parts(directory, clock, access, **settings)
    try:
        server = LocalServer(parts)
        try:
            yield LocalFace(parts, server, clock)
        finally:
            server.close()
    finally:
        parts.close()
