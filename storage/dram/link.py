"""The connection to Redis: bounded, without retries, with a time limit on every wait, and mute about passwords.

redis-py opens, authenticates and pools the connections and parses what comes back. Commands are packed here, so that a
payload goes to the socket as it is, without being joined to its header or to the command first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import takewhile
from typing import Any, Protocol

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import BlockingConnectionPool, Connection, ConnectionInterface
from redis.retry import Retry

from storage.base import Payload
from storage.clock import Clock
from storage.dram.ailment import Ailment
from storage.dram.bounded import BoundedSocket, OnBytes, Waiting, bounded
from storage.dram.place import PoolKind, PoolPlace
from storage.dram.watched import watched_pool

Argument = bytes | int | tuple[Payload, ...]
"""One argument of a command; a tuple is sent as one string, its buffers behind each other."""
Command = tuple[Argument, ...]
Reply = Any
"""What Redis answered: bytes, int, list, None, or a ResponseError that is about this one command."""


class _Away:
    """See :data:`AWAY`."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "AWAY"


AWAY = _Away()
"""The reply of a server of several that does not serve: false, as what is not there."""

READ_BYTES = 256 << 10
"""How much is asked of a socket at once."""

READ_ONLY_SECONDS = 5.0
"""How long nothing is written after a refusal of a read-only server."""

_JOIN_BYTES = 4096
_ABOUT_ONE_COMMAND = (exceptions.OutOfMemoryError, exceptions.ExecAbortError)
REDIRECTIONS = (exceptions.AskError, exceptions.TryAgainError, exceptions.ClusterDownError)
"""What a node of a cluster says of a slot that it does not serve, or not quite. A MovedError is an AskError."""


_LATE = (exceptions.TimeoutError, TimeoutError)
_DENYING = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_REFUSING = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.ResponseError,
    exceptions.InvalidResponse,
)


class LinkDownError(Exception):
    """Redis cannot be used now; ``ailment`` says in which way.

    The message names the kind of error and the place, never what was sent.
    """

    def __init__(self, ailment: Ailment, message: str) -> None:
        self.ailment = ailment
        super().__init__(message)


class Session:
    """One connection for as long as a conversation needs it. See :meth:`RedisLink.session`."""

    def __init__(self, connection: ConnectionInterface, waiting: Waiting) -> None:
        self._connection = connection
        self._waiting = waiting

    def ask(self, commands: Sequence[Command], on_bytes: OnBytes | None = None) -> list[Reply]:
        """Send commands in one go and read all their replies: one round, which has its time.

        Replies that concern one command (out of memory, wrong type, a transaction that was refused) stand in its place.
        ``on_bytes`` is told of what the first command gets, where that is a ``GET`` of something long.
        """
        self._waiting.begin()
        try:
            replies = self._exchange(commands, on_bytes)
        finally:
            self._waiting.end()
        for reply in replies:
            if isinstance(reply, exceptions.ResponseError) and not _is_about_one_command(reply):
                raise reply
        return replies

    def _exchange(self, commands: Sequence[Command], on_bytes: OnBytes | None) -> list[Reply]:
        self._connection.send_packed_command(pack(commands), check_health=False)
        replies: list[Reply] = []
        sock: BoundedSocket = self._connection._sock  # type: ignore[attr-defined]
        # The parser reads ahead: once it has begun, it reads whatever is left.
        for _ in takewhile(lambda command: command[0] == b"GET", commands):
            value = sock.read_bulk(None if replies else on_bytes)
            if value is None:
                break
            replies.append(value)
        for _ in commands[len(replies) :]:
            try:
                replies.append(self._connection.read_response())
            except exceptions.ResponseError as error:
                replies.append(error)
        return replies


class Link(Protocol):
    """What the pool needs of whatever is behind it. Every verb may raise LinkDownError."""

    where: str
    """Where it is, without credentials."""

    @property
    def ailment(self) -> Ailment | None:
        """What ended the last conversation before its time; None when nothing did, and before the first."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether it refused a write as a replica does, a short while ago."""
        ...

    def ask(self, commands: Sequence[Command], on_bytes: OnBytes | None = None) -> list[Reply]:
        """One round; see :meth:`Session.ask`. Nothing to ask touches no connection."""
        ...

    def ask_all(self, command: Command) -> list[Reply]:
        """One command that names no key, of every server: one reply each."""
        ...

    def session(self, key: bytes) -> AbstractContextManager[Session]:
        """A connection of one's own to where a key is, for a conversation of more than one round."""
        ...

    def scan(self, cursor: int, pattern: bytes, count: int) -> tuple[int, list[bytes]]:
        """One step through all names: the next cursor, 0 at the end, and the names found."""
        ...

    def trouble(self) -> str | None:
        """What is wrong although it serves, in words; None where nothing is."""
        ...

    def close(self) -> None:
        """Drop all connections. Safe to call twice."""
        ...


class RedisLink:
    """A Redis server as the pool sees it, a :class:`Link`.

    Args:
        place: one server, or a master that Sentinels watch.
        clock: for the waits (monotonic).
        timeout_seconds: longest wait for a free connection, for a new one with its handshake, and for all replies of
            one round. The time that bytes take at a sound rate does not count. The patience of the work that asks
            (:mod:`storage.patience`) may make it shorter.
        max_connections: most connections open at a time; who finds none free waits ``timeout_seconds``.
        on_fault: told of every fault.
    """

    def __init__(
        self,
        place: PoolPlace,
        *,
        clock: Clock,
        timeout_seconds: float,
        max_connections: int,
        on_fault: Callable[[Ailment], None],
    ) -> None:
        self.where = place.where
        """Where the server is, without credentials."""
        self.ailment: Ailment | None = None
        """What ended the last conversation before its time; None when nothing did, and before the first."""
        self._clock = clock
        self._writes_again_at = 0.0
        self._waiting = Waiting(clock, timeout_seconds)
        self._on_fault = on_fault
        self._is_closed = False
        self._pool = _connections(
            place,
            self._waiting,
            timeout_seconds,
            max_connections=max_connections,
            timeout=timeout_seconds,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            socket_read_size=READ_BYTES,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            protocol=2,
        )

    def __repr__(self) -> str:
        return f"RedisLink({self.where})"

    @contextmanager
    def session(self, key: bytes = b"") -> Iterator[Session]:  # noqa: ARG002 - all keys are in one place
        """See :meth:`Link.session`.

        Raises:
            LinkDownError: from here or from any ``ask``; the connection is dropped and nobody asks again.
            ValueError: the link is closed.
        """
        if self._is_closed:
            raise ValueError("the connection to Redis is closed")
        try:
            connection = self._connect()
        except (exceptions.RedisError, OSError) as error:
            raise self._down(error) from None
        try:
            yield Session(connection, self._waiting)
        except (exceptions.RedisError, OSError) as error:
            connection.disconnect()
            raise self._down(error) from None
        except BaseException:  # whatever ended the conversation, unread replies must not meet the next one
            connection.disconnect()
            raise
        else:
            self.ailment = None
        finally:
            if self._is_closed:  # Closed meanwhile: nobody comes to close what this conversation opened anew.
                connection.disconnect()
            self._pool.release(connection)

    def ask(self, commands: Sequence[Command], on_bytes: OnBytes | None = None) -> list[Reply]:
        """One round on any connection; see :meth:`Session.ask`. Nothing to ask touches no connection."""
        if not commands:
            return []
        with self.session() as session:
            return session.ask(commands, on_bytes)

    def ask_all(self, command: Command) -> list[Reply]:
        """See :meth:`Link.ask_all`."""
        return self.ask([command])

    def scan(self, cursor: int, pattern: bytes, count: int) -> tuple[int, list[bytes]]:
        """See :meth:`Link.scan`."""
        (reply,) = self.ask([(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", count)])
        if not isinstance(reply, list):
            raise TypeError(f"SCAN was answered with {reply!r:.80}")
        return int(reply[0]), list(reply[1])

    def trouble(self) -> str | None:
        """See :meth:`Link.trouble`."""
        return None

    @property
    def is_read_only(self) -> bool:
        """Whether it refused a write as a replica does, in the last ``READ_ONLY_SECONDS``: until then try no other."""
        return self._clock.monotonic() < self._writes_again_at

    def close(self) -> None:
        """Drop all connections. Safe to call twice."""
        self._is_closed = True
        self._pool.disconnect()

    def _connect(self) -> ConnectionInterface:
        """A connection that is free, or a new one; its handshake is a round of its own."""
        self._waiting.begin()
        try:
            connection: ConnectionInterface = self._pool.get_connection()
            return connection
        finally:
            self._waiting.end()

    def _down(self, error: Exception) -> LinkDownError:
        self.ailment = ailment_of(error)
        if isinstance(error, exceptions.ReadOnlyError):
            self._writes_again_at = self._clock.monotonic() + READ_ONLY_SECONDS
        self._on_fault(self.ailment)
        return LinkDownError(self.ailment, f"{type(error).__name__} at {self.where}")


def _connections(place: PoolPlace, waiting: Waiting, timeout_seconds: float, **options: Any) -> BlockingConnectionPool:
    if place.kind is PoolKind.SENTINEL:
        return watched_pool(place, waiting, timeout_seconds, **options)
    own = dict(place.options)
    kind = bounded(own.pop("connection_class", Connection), waiting)
    return BlockingConnectionPool(connection_class=kind, **own, **options)


def ailment_of(error: Exception) -> Ailment:
    """What an error of a conversation says about the server."""
    if isinstance(error, _LATE):
        return Ailment.TIMEOUT
    if isinstance(error, _DENYING):
        return Ailment.DENIED
    return Ailment.REFUSED if isinstance(error, _REFUSING) else Ailment.UNREACHABLE


def pack(commands: Sequence[Command]) -> list[Payload]:
    """Commands as RESP, in buffers to be sent one after the other; large ones are the callers' own, not copies."""
    buffers: list[Payload] = []
    small: list[bytes] = []
    for command in commands:
        small.append(b"*%d\r\n" % len(command))
        for argument in command:
            pieces = argument if isinstance(argument, tuple) else (_text(argument),)
            small.append(b"$%d\r\n" % sum(memoryview(piece).nbytes for piece in pieces))
            for piece in pieces:
                if memoryview(piece).nbytes > _JOIN_BYTES:
                    buffers += [b"".join(small), piece]
                    small = []
                else:
                    small.append(bytes(piece))
            small.append(b"\r\n")
    return [*buffers, b"".join(small)]


def _text(argument: bytes | int) -> bytes:
    return argument if isinstance(argument, bytes) else b"%d" % argument


def _is_about_one_command(error: exceptions.ResponseError) -> bool:
    return isinstance(error, _ABOUT_ONE_COMMAND + REDIRECTIONS) or str(error).startswith("WRONGTYPE")
