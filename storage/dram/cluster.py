"""A Redis Cluster as the pool sees it: every command goes to the node that has its key, and each node has its breaker.

redis-py opens the connections, as for one server. Its own cluster client is not used: it retries for seconds where a
request waits for a quarter of one, and joins payloads to their commands. What is left to do is little: a table of
slots, asked for again whenever a node does not serve what the table says.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from kvshelf_client.circuit import Breaker
from storage.clock import Clock
from storage.dram.ailment import Ailment
from storage.dram.bounded import OnBytes
from storage.dram.link import AWAY, REDIRECTIONS, Command, LinkDownError, RedisLink, Reply, Session
from storage.dram.place import PoolPlace

REFRESH_SECONDS = 0.25
"""The table of slots is asked for at most this often."""

Address = tuple[str, int]
OpenLink = Callable[[PoolPlace], RedisLink]


class _Node(NamedTuple):
    link: RedisLink
    breaker: Breaker


class ClusterLink:
    """A :class:`storage.dram.link.Link` to the masters of a cluster.

    A node that is away takes only its own slots with it: their replies are ``AWAY``, everybody else is served. Nobody
    waits for it once its breaker is open. LinkDownError is for a cluster of which nothing can be reached.

    Args:
        place: any of the cluster's nodes, several for when some are away.
        open_link: opens a link to one server.
        clock: for the breakers and for how often the table is asked for (monotonic).
        jitter: in [0, 1), see :class:`Breaker`.
    """

    is_read_only = False
    """A node that was demoted says where its slots went, so that no cluster is ever read-only."""

    def __init__(self, place: PoolPlace, *, open_link: OpenLink, clock: Clock, jitter: Callable[[], float]) -> None:
        self.where = place.where
        self._place = place
        self._open_link = open_link
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._nodes: dict[Address, _Node] = {}
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._refreshed_at = float("-inf")
        self._unreached: Ailment | None = None
        self._is_closed = False

    @property
    def ailment(self) -> Ailment | None:
        """See :meth:`Link.ailment`: None while any master serves."""
        ailments = [node.link.ailment for node in list(self._nodes.values())]
        return next((None for one in ailments if one is None), ailments[0]) if ailments else self._unreached

    def trouble(self) -> str | None:
        """Which share of the masters does not serve."""
        ailing = [one for one in (node.link.ailment for node in list(self._nodes.values())) if one is not None]
        if ailing:
            share = f"{len(ailing)} of {len(self._nodes)} masters of the pool"
            return f"{share}: {ailing[0].words}; snapshots in their slots are misses"
        unserved = self._owners.count(None)
        if self._nodes and unserved:
            return f"{unserved} of {len(self._owners)} slots of the pool have no master; their snapshots are misses"
        return None

    def ask(self, commands: Sequence[Command], on_bytes: OnBytes | None = None) -> list[Reply]:
        """See :meth:`Link.ask`. What a node redirects, or leaves unanswered, is asked once more if its slot moved."""
        replies: list[Reply] = [AWAY] * len(commands)
        pending = list(range(len(commands)))
        for _ in range(2):
            asked = {at: self._owner_of(commands[at]) for at in pending}
            self._ask_nodes(commands, asked, replies, on_bytes)
            pending = [at for at in pending if replies[at] is AWAY]
            if not pending or not self._refresh():
                break
            pending = [at for at in pending if self._owner_of(commands[at]) != asked[at]]
        if pending and not self._nodes:
            raise self._down()
        return replies

    def ask_all(self, command: Command) -> list[Reply]:
        """See :meth:`Link.ask_all`. ``AWAY`` for a node that is."""
        if not self._nodes:
            self._refresh()
        replies = [reply for node in list(self._nodes.values()) for reply in _ask(node, [command])]
        if AWAY in replies:
            self._refresh()
        if all(reply is AWAY for reply in replies):
            raise self._down()
        return replies

    @contextmanager
    def session(self, key: bytes) -> Iterator[Session]:
        """See :meth:`Link.session`. A redirection in it is a LinkDownError: who comes next goes to the right node."""
        owner = self._owner(key)
        node = self._nodes.get(owner) if owner else None
        turn = node.breaker.begin() if node else None
        if node is None or turn is None:
            raise self._down()
        is_well = None
        try:
            with node.link.session() as session:
                yield _Undirected(session, self)
            is_well = True
        except LinkDownError:
            is_well = False
            self._refresh()
            raise
        finally:
            node.breaker.end(turn, is_well=is_well)

    def scan(self, cursor: int, pattern: bytes, count: int) -> tuple[int, list[bytes]]:
        """See :meth:`Link.scan`. Node after node, by address; the cursor says which. Slots that move meanwhile may be
        gone through twice, or not at all: then scan again.
        """
        if not self._nodes:
            self._refresh()
        addresses = sorted(self._nodes)
        if not addresses:
            raise self._down()
        inner, number = divmod(cursor, len(addresses))
        node = self._nodes.get(addresses[number])
        if node is None:
            raise self._down()
        inner, names = node.link.scan(inner, pattern, count)
        if inner:
            return inner * len(addresses) + number, names
        return (number + 1) % len(addresses), names

    def close(self) -> None:
        """See :meth:`Link.close`."""
        self._is_closed = True
        for node in list(self._nodes.values()):
            node.link.close()

    def redirected(self) -> LinkDownError:
        """The table is out of date: ask for it, and give up what was begun."""
        self._refresh()
        return LinkDownError(Ailment.REFUSED, f"a slot moved at {self.where}")

    def _owner_of(self, command: Command) -> Address | None:
        key = command[1]
        if not isinstance(key, bytes):
            raise TypeError(f"{command[0]!r} names no key")
        return self._owner(key)

    def _owner(self, key: bytes) -> Address | None:
        if self._is_closed:
            raise ValueError("the connection to Redis is closed")
        if not self._nodes:
            self._refresh()
        return self._owners[key_slot(key)]

    def _ask_nodes(
        self,
        commands: Sequence[Command],
        asked: dict[int, Address | None],
        replies: list[Reply],
        on_bytes: OnBytes | None,
    ) -> None:
        for address in set(asked.values()):
            node = self._nodes.get(address) if address else None
            if node is None:
                continue
            places = [at for at, owner in asked.items() if owner == address]
            told = on_bytes if places[0] == 0 else None
            for at, reply in zip(places, _ask(node, [commands[at] for at in places], told), strict=True):
                replies[at] = AWAY if isinstance(reply, REDIRECTIONS) else reply

    def _refresh(self) -> bool:
        """Ask for the table of slots, unless that was just done; whether it was asked for and came."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._refreshed_at < REFRESH_SECONDS or self._is_closed:
                return False
            self._refreshed_at = now
            for address, node in [*self._nodes.items()]:
                if node.link.ailment is None and self._learn(node.link, address[0]):
                    return True
            for host, port in self._place.hosts:
                known = self._nodes.get((host, port))
                link = known.link if known else self._open_link(self._place.at(host, port))
                try:
                    if self._learn(link, host):
                        return True
                    self._unreached = link.ailment
                finally:
                    if known is None:
                        link.close()
            return False

    def _learn(self, link: RedisLink, host: str) -> bool:
        """Take the table from one node; False when it does not give it."""
        with suppress(LinkDownError):
            (table,) = link.ask([(b"CLUSTER", b"SLOTS")])
            if isinstance(table, list) and table:
                self._take(table, host)
                return True
        return False

    def _take(self, table: list[list[Reply]], host: str) -> None:
        """``table`` has a row a range of slots: first, last, the master's host, port and id, then its replicas'."""
        owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, (name, port, *_), *_replicas in table:
            # A node that was not told its own name leaves it out: it is where it was asked.
            owners[first : last + 1] = [((name or b"").decode() or host, port)] * (last + 1 - first)
        masters = {owner for owner in owners if owner is not None}
        nodes = {address: self._nodes.get(address) or self._open(address) for address in masters}
        gone = [node for address, node in self._nodes.items() if address not in nodes]
        self._nodes, self._owners = nodes, owners
        for node in gone:
            node.link.close()

    def _open(self, address: Address) -> _Node:
        breaker = Breaker(
            self._clock.monotonic,
            faults_to_open=2,
            first_delay_seconds=REFRESH_SECONDS,
            max_delay_seconds=4 * REFRESH_SECONDS,
            jitter=self._jitter,
        )
        return _Node(self._open_link(self._place.at(*address)), breaker)

    def _down(self) -> LinkDownError:
        return LinkDownError(self.ailment or Ailment.UNREACHABLE, f"nothing serves that key at {self.where}")


class _Undirected(Session):
    """A conversation that ends when the node says that the slot is not its own."""

    def __init__(self, session: Session, link: ClusterLink) -> None:
        self._session = session
        self._link = link

    def ask(self, commands: Sequence[Command], on_bytes: OnBytes | None = None) -> list[Reply]:
        """See :meth:`Session.ask`."""
        replies = self._session.ask(commands, on_bytes)
        if any(isinstance(reply, REDIRECTIONS) for reply in replies):
            raise self._link.redirected()
        return replies


def _ask(node: _Node, commands: Sequence[Command], on_bytes: OnBytes | None = None) -> list[Reply]:
    """Ask one node, unless its breaker is open; ``AWAY`` for all when it does not answer."""
    turn = node.breaker.begin()
    if turn is None:
        return [AWAY] * len(commands)
    is_well = None
    try:
        replies = node.link.ask(commands, on_bytes)
        is_well = True
    except (LinkDownError, ValueError):  # A link that was closed meanwhile belongs to a node that left.
        is_well = False
        replies = [AWAY] * len(commands)
    finally:
        node.breaker.end(turn, is_well=is_well)
    return replies
