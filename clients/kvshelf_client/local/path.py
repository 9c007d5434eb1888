"""Fetches over the local path, in steps, and when to leave it alone."""

import os
from collections import deque
from contextlib import suppress

from kvshelf_client.answers import LocalAddress
from kvshelf_client.deadline import Deadline, Monotonic, monotonic
from kvshelf_client.errors import DeadlineError, FrameError, KvshelfError, ServiceError, UnreachableError
from kvshelf_client.frames import FrameHeader
from kvshelf_client.http.steps import Steps
from kvshelf_client.local.loading import load
from kvshelf_client.local.peer import Peer, RefusedError, greet
from kvshelf_client.local.segments import Segments
from kvshelf_client.local.wire import PROTOCOL_VERSION, Open, Refusal
from kvshelf_client.requests import Fetch
from kvshelf_client.transport import Sink, TransportOptions

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.5, 60.0
"""How long the local path is left alone after it came to nothing: twice as long each time."""

_STATUS = {Refusal.UNKNOWN_LEASE: 404, Refusal.OUT_OF_RANGE: 422}
_MAX_IDLE = 8
_SHARE = 0.5
"""Of a call's time, to find out whether the local path serves it: what is left is for another way."""


class LocalPath:
    """The local path to one service, as long as there is one. Threads may share it.

    Args:
        options: the token, and bounds.
        clock: says when to try again.
    """

    def __init__(self, options: TransportOptions, clock: Monotonic = monotonic) -> None:
        self._options = options
        self._clock = clock
        self.segments = Segments()
        self._idle: deque[Peer] = deque()
        self._address: LocalAddress | None = None
        self._process = os.getpid()
        self._pause_seconds, self._try_at = FIRST_PAUSE_SECONDS, clock()

    @property
    def is_sought(self) -> bool:
        """Whether it is time to ask the service where it is. Then comes :meth:`found` or :meth:`put_off`."""
        return self._address is None and self._clock() >= self._try_at

    @property
    def is_there(self) -> bool:
        """Whether a fetch is to be tried."""
        return self._address is not None

    def found(self, address: LocalAddress) -> None:
        """The service says that it is there."""
        if address.protocol == PROTOCOL_VERSION and os.path.exists(address.socket):
            self._address = address
        else:
            self.put_off(LAST_PAUSE_SECONDS)

    def put_off(self, seconds: float = 0.0) -> None:
        """It came to nothing: leave it alone for a while, at least for ``seconds``, and ask anew where it is."""
        self._address = None
        self._try_at = self._clock() + max(self._pause_seconds, seconds)
        self._pause_seconds = min(2 * self._pause_seconds, LAST_PAUSE_SECONDS)
        self._let_go()
        self.segments.forget()

    def close(self) -> None:
        """Let go of everything, for good."""
        self._address, self._try_at = None, float("inf")
        self._let_go()
        self.segments.forget()

    def fetch(self, request: Fetch, deadline: Deadline) -> Steps[bool]:
        """Do a fetch. False when it cannot be done here, and nothing of it has come yet.

        Raises:
            KvshelfError: as :meth:`Transport.call <kvshelf_client.transport.Transport.call>`.
        """
        sink = _Watched(request.sink)
        peer: Peer | None = None
        try:
            first = deadline.within(deadline.remaining_seconds * _SHARE)
            peer = yield from self.take(first)
            ask = Open(request.lease_id, request.shard, request.fallback, request.call_id)
            opened = yield from peer.open(ask, sink, self.segments, first)
            yield from load(request.lease_id, opened, sink, peer, deadline)
        except (OSError, FrameError, RefusedError) as error:
            self._after(error, peer)
            found = translated(error, deadline)
            if sink.has_begun or isinstance(found, DeadlineError):
                raise found from error
            return False  # What is wrong with a lease the other way says, too, and in full.
        except BaseException:  # the sink's errors, or a cancellation: what is left unread is nobody's any more
            _close(peer)
            raise
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self.give_back(peer)
        return True

    def take(self, deadline: Deadline) -> Steps[Peer]:
        """A peer that nobody else uses, to be closed or given back. Raises as :func:`greet`."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._let_go()
        address = self._address
        if address is None:
            raise ConnectionError("there is no local path")
        while self._idle:
            with suppress(IndexError):  # another thread may have been faster
                peer = self._idle.pop()
                if peer.channel.is_quiet:
                    return peer
                peer.channel.close()
        return (yield from greet(address, self._options.token, self._options.max_payload_bytes, deadline))

    def give_back(self, peer: Peer) -> None:
        """Keep a peer for later, whose last answer was read to its end."""
        if len(self._idle) < _MAX_IDLE and self._address is not None:
            self._idle.append(peer)
        else:
            peer.channel.close()

    def _after(self, error: OSError | FrameError | RefusedError, peer: Peer | None) -> None:
        """Put off a path that does not serve. A refusal may be about the lease alone, or about the moment."""
        reason = error.reason if isinstance(error, RefusedError) else None
        if reason is None or reason.ends_connection:
            _close(peer)
        elif peer is not None:
            self.give_back(peer)
        if reason is not Refusal.BUSY and reason not in _STATUS:
            self.put_off()

    def _let_go(self) -> None:
        while self._idle:
            with suppress(IndexError):  # another thread may have been faster
                self._idle.pop().channel.close()


class _Watched:
    """A sink that knows whether anything has come."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.has_begun = False
        self.end = sink.end

    def begin(self, header: FrameHeader) -> memoryview:
        self.has_begun = True
        return self._sink.begin(header)


def _close(peer: Peer | None) -> None:
    if peer is not None:
        peer.channel.close()


def translated(error: OSError | FrameError | RefusedError, deadline: Deadline) -> KvshelfError:
    """What went wrong with a peer, in the words of a transport."""
    if isinstance(error, RefusedError) and error.reason in _STATUS:
        return ServiceError(_STATUS[error.reason], {"detail": str(error)})
    if isinstance(error, FrameError):
        return error
    if isinstance(error, TimeoutError) and deadline.is_over:
        return DeadlineError("the time was up before the local path had answered")
    return UnreachableError(f"the local path broke: {error}")
