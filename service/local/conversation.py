"""One client's conversation: who it is, then one request after the other."""

import os
import socket
from collections.abc import Sequence

import structlog

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import FrameError
from kvshelf_client.http.steps import wait
from kvshelf_client.local.address import peer_user
from kvshelf_client.local.channel import Channel
from kvshelf_client.local.channel import Parts as MessageParts
from kvshelf_client.local.wire import (
    MAX_REQUEST_BYTES,
    Kind,
    Refusal,
    VersionError,
    pack_alive,
    pack_ranges,
    pack_refusal,
    unpack_hello,
    unpack_open,
    unpack_read,
    unpack_renew,
)
from kvshelf_client.steps import run
from service.access import AccessDeniedError, Principal, Scope, ScopeError
from service.leases.book import UnknownLeaseError
from service.local.handing import ElsewhereError, hand_out
from service.request_ids import begin_request_id
from service.shelf.fetching import NoSuchBlockError, NoSuchShardError, open_blocks
from service.shelf.parts import Parts
from storage.patience import Patience, waiting_with

IDLE_SECONDS = 600.0
"""How long a client may say nothing. It connects again when it has something to say."""
STEP_SECONDS = 5.0
"""How long one message may take to come, or to be taken."""

_LOG = structlog.get_logger("kvshelf.local")
_REFUSALS: dict[type[Exception], Refusal] = {
    UnknownLeaseError: Refusal.UNKNOWN_LEASE,
    NoSuchShardError: Refusal.OUT_OF_RANGE,
    NoSuchBlockError: Refusal.OUT_OF_RANGE,
    ElsewhereError: Refusal.ELSEWHERE,
}


class _RefusedError(Exception):
    """The answer is a refusal, and the end of the conversation."""

    def __init__(self, reason: Refusal, text: str) -> None:
        self.reason = reason
        super().__init__(text)


class Conversation:
    """Answers one client until either end hangs up. Blocks; runs in a thread of its own.

    Args:
        parts: the service.
        sock: the connection; its own from now on.
        instance: what this service is called until it ends.
    """

    def __init__(self, parts: Parts, sock: socket.socket, instance: bytes) -> None:
        self._parts = parts
        self._user = peer_user(sock)
        self._channel = Channel(sock, takes_descriptors=False)
        self._instance = instance
        self._token: str | None = None
        self._log = _LOG.bind()  # Once: a line that is left out costs nothing then.

    def hang_up(self) -> None:
        """End it, from another thread."""
        self._channel.hang_up()

    def run(self) -> None:
        """Talk until the end."""
        try:
            self._converse()
        except OSError as error:
            self._log.debug("local_client_gone", reason=str(error))
        finally:
            self._channel.close()

    def turn_away(self, reason: Refusal, text: str) -> None:
        """Say no, and hang up."""
        try:
            self._refuse(reason, text)
        except OSError as error:
            self._log.debug("local_client_gone", reason=str(error))
        finally:
            self._channel.close()

    def _converse(self) -> None:
        try:
            self._greet()
            while run(self._channel.wait_for_message(IDLE_SECONDS), wait):
                self._answer(*self._receive())
        except VersionError as error:
            self._refuse(Refusal.VERSION, str(error))
        except FrameError as error:
            self._refuse(Refusal.MALFORMED, str(error))
        except _RefusedError as error:
            self._refuse(error.reason, str(error))

    def _greet(self) -> None:
        """Let the client in, or raise."""
        if self._user != os.geteuid():
            raise _RefusedError(Refusal.DENIED, f"the local path is for user {os.geteuid()}, not for {self._user}")
        kind, body = self._receive()
        if kind is not Kind.HELLO:
            raise FrameError(f"a conversation begins with a hello, not with {kind.name}")
        instance, self._token = unpack_hello(body)
        if instance != self._instance:
            raise _RefusedError(Refusal.INSTANCE, "this is another service than the one that was asked for")
        self._principal()
        begin_request_id(None)
        self._send(Kind.WELCOME, [self._instance])

    def _principal(self) -> Principal:
        """Who asks: looked up for each request, since a token may be taken back at any time."""
        try:
            principal = self._parts.access.authenticate(self._token)
            principal.require(Scope.READ)
        except (AccessDeniedError, ScopeError) as error:
            raise _RefusedError(Refusal.DENIED, str(error)) from None
        return principal

    def _answer(self, kind: Kind, body: bytearray) -> None:
        principal, answer = self._principal(), _ANSWERS.get(kind)
        if answer is None:
            raise FrameError(f"{kind.name} is no request")
        try:
            with waiting_with(Patience(self._parts.settings.pool.request_seconds)):
                answer(self, principal, body)
            self._log.debug("answered", kind=kind.name)
        except tuple(_REFUSALS) as error:
            self._refuse(_REFUSALS[type(error)], str(error))

    def _open(self, principal: Principal, body: bytearray) -> None:
        parts, ask = self._parts, unpack_open(body)
        begin_request_id(ask.request_id)
        with parts.metrics.latency.labels("open").time(), hand_out(parts, principal, ask) as handed:
            if handed.head:
                self._send(Kind.FRAMES, handed.head)
            for part in handed.parts:
                is_last = part is handed.parts[-1]
                packed = pack_ranges(part.ranges, is_last=is_last, fell_back=handed.fell_back)
                self._send(Kind.RANGES, [packed], part.descriptors)

    def _read(self, principal: Principal, body: bytearray) -> None:
        parts, ask = self._parts, unpack_read(body)
        numbers = range(ask.first, ask.first + ask.blocks)
        with parts.metrics.latency.labels("fetch").time():
            fetch = open_blocks(parts, principal.tenant, ask.lease_id, ask.shard, numbers, of_fallback=ask.of_fallback)
            run(self._channel.send_header(Kind.FRAMES, fetch.length_bytes, self._deadline()), wait)
            for batch in fetch.batches:
                run(self._channel.send_body(batch, self._deadline()), wait)

    def _renew(self, principal: Principal, body: bytearray) -> None:
        with self._parts.leases.use(principal.tenant, unpack_renew(body)) as lease:
            ttl_seconds = lease.ttl_seconds
        self._send(Kind.ALIVE, [pack_alive(ttl_seconds)])

    def _refuse(self, reason: Refusal, text: str) -> None:
        self._parts.metrics.local_refusals.labels(reason.name.lower()).inc()
        self._send(Kind.REFUSED, [pack_refusal(reason, text)])

    def _send(self, kind: Kind, body: MessageParts, descriptors: Sequence[int] = ()) -> None:
        run(self._channel.send(kind, body, self._deadline(), descriptors), wait)

    def _receive(self) -> tuple[Kind, bytearray]:
        """The next message; descriptors that come along are not taken."""
        deadline = self._deadline()
        header, _ = run(self._channel.receive_header(deadline), wait)
        return header.kind, run(self._channel.read_body(header, MAX_REQUEST_BYTES, deadline), wait)

    def _deadline(self) -> Deadline:
        return Deadline(STEP_SECONDS, self._parts.clock.monotonic)


_ANSWERS = {Kind.OPEN: Conversation._open, Kind.READ: Conversation._read, Kind.RENEW: Conversation._renew}
