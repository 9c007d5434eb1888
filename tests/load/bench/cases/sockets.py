"""References: bytes through the kernel's sockets, from a process that does nothing else."""

import socket
import tempfile
from typing import ClassVar

from tests.load.bench.base import Case, Figures
from tests.load.bench.feeder import feeding, receive
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.sizes import BLOCK_BYTES, SNAPSHOT_BYTES
from tests.load.bench.stage import Stage


class _Socket(Case):
    """A prompt's bytes into one buffer of the caller's."""

    figure: ClassVar[str]
    family: ClassVar[socket.AddressFamily] = socket.AF_INET

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._socket = stage.closing.enter_context(feeding(self.family, self._address(stage)))
        self._buffer = memoryview(bytearray(b"\1") * self.transfer_bytes())
        receive(self._socket, self._buffer, BLOCK_BYTES)  # It has started once it answers.

    def _address(self, stage: Stage) -> tuple[str, int] | str:
        if self.family == socket.AF_INET:
            return ("127.0.0.1", 0)
        # A socket's address holds 107 bytes, and the stage may be deep down.
        return stage.closing.enter_context(tempfile.TemporaryDirectory(prefix="kvs-")) + "/feeder.sock"

    def transfer_bytes(self) -> int:
        """Bytes asked for at a time."""
        return self.stage.sizes.prompt_bytes

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        piece = min(BLOCK_BYTES, len(self._buffer))
        seconds = self.stage.sizes.seconds
        return {self.figure: rate_gb_s(lambda: receive(self._socket, self._buffer, piece), seconds)}


class LoopbackTcp(_Socket):
    """Loopback TCP, ``recv_into``: the reference of everything that goes over HTTP."""

    name = "tcp"
    figure = "tcp_gb_s"


class UnixSocket(_Socket):
    """A UNIX socket, ``recv_into``."""

    name = "unix_socket"
    figure = "unix_socket_gb_s"
    family = socket.AF_UNIX


class SnapshotTcp(_Socket):
    """Loopback TCP with as many bytes as a snapshot has."""

    name = "snapshot_tcp"
    figure = "snapshot_tcp_gb_s"

    def transfer_bytes(self) -> int:
        """See there."""
        return SNAPSHOT_BYTES
