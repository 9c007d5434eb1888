"""The link that a pool's place asks for."""

from collections.abc import Callable

from storage.clock import Clock
from storage.dram.ailment import Ailment
from storage.dram.cluster import ClusterLink
from storage.dram.link import Link, RedisLink
from storage.dram.place import PoolKind, PoolPlace


def link_to(
    place: PoolPlace,
    *,
    clock: Clock,
    timeout_seconds: float,
    max_connections: int,
    on_fault: Callable[[Ailment], None],
    jitter: Callable[[], float],
) -> Link:
    """A link to one server, to the master that Sentinels name, or to a cluster. Arguments as theirs."""

    def open_link(one: PoolPlace) -> RedisLink:
        return RedisLink(
            one, clock=clock, timeout_seconds=timeout_seconds, max_connections=max_connections, on_fault=on_fault
        )

    if place.kind is PoolKind.CLUSTER:
        return ClusterLink(place, open_link=open_link, clock=clock, jitter=jitter)
    return open_link(place)
