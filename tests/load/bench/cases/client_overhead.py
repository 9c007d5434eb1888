"""What the shipped client adds to the fetch of one block, over a socket that asks for the same bytes and no more."""

import socket
import statistics
from urllib.parse import urlsplit

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import median_us
from tests.load.bench.sizes import BLOCK_BYTES, BLOCK_TOKENS
from tests.load.bench.stage import Stage

_HEAD_END = b"\r\n\r\n"
_MOST_HEAD_BYTES = 2048
_TURNS = 4
_BLOCKS = 4
"""All but the last are in the engine, so that one is loaded."""


class ClientOverhead(Case):
    """One block, warm: the client's call with its checksum, and the bare exchange, in turns."""

    name = "client_overhead"
    costs = ("client_overhead_us",)

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()
        self._tokens = stage.prompt(_BLOCKS)
        self._service.client.store(self._service.namespace, stage.records(self._service, self._tokens))
        address = urlsplit(self._service.url)
        self._socket = stage.closing.enter_context(socket.create_connection((address.hostname, address.port)))
        self._room = memoryview(bytearray(2 * BLOCK_BYTES))

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with self._service.leased(self._tokens, hbm_tokens=(_BLOCKS - 1) * BLOCK_TOKENS) as plan:
            assert plan.lease is not None
            target, host = f"/v1/leases/{plan.lease.lease_id}/fetch", urlsplit(self._service.url).netloc
            question = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            assert self._service.fetch(plan) == BLOCK_BYTES
            assert self._exchange(question) > BLOCK_BYTES
            seconds = self.stage.sizes.seconds / _TURNS
            added = [
                median_us(lambda: self._service.fetch(plan), seconds)
                - median_us(lambda: self._exchange(question), seconds)
                for _ in range(_TURNS)
            ]
            return {"client_overhead_us": statistics.median(added)}

    def _exchange(self, question: bytes) -> int:
        """Ask and receive all of the answer; returns the bytes of its body."""
        self._socket.sendall(question)
        count, head = 0, -1
        while head < 0:
            count += self._socket.recv_into(self._room[count:])
            head = self._room[: min(count, _MOST_HEAD_BYTES)].tobytes().find(_HEAD_END)
        lines = self._room[:head].tobytes().lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        while count < head + len(_HEAD_END) + length:
            count += self._socket.recv_into(self._room[count:])
        return length
