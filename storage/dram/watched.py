"""Connections to whichever server the Sentinels say is the master now, by redis-py's own discovery."""

from typing import Any

from redis.connection import BlockingConnectionPool, SSLConnection
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPoolProxy,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from storage.dram.bounded import Waiting, bounded
from storage.dram.place import PoolPlace


def watched_pool(place: PoolPlace, waiting: Waiting, timeout_seconds: float, **options: Any) -> BlockingConnectionPool:
    """A pool whose every new connection asks for the master first. The Sentinels share the time of one wait.

    They are asked with neither the password nor the user of the pool: they have their own, or none.
    """
    own = dict(place.options)
    is_encrypted = issubclass(own.pop("connection_class", object), SSLConnection)
    for name in ("host", "port"):
        own.pop(name, None)
    seconds = timeout_seconds / len(place.hosts)
    sentinels = Sentinel(
        place.hosts, sentinel_kwargs={"socket_timeout": seconds, "socket_connect_timeout": seconds, "protocol": 2}
    )
    kind = SentinelManagedSSLConnection if is_encrypted else SentinelManagedConnection
    pool = BlockingConnectionPool(connection_class=bounded(kind, waiting), **own, **options)
    pool.connection_kwargs["connection_pool"] = SentinelConnectionPoolProxy(
        connection_pool=pool,
        is_master=True,
        check_connection=False,
        service_name=place.service,
        sentinel_manager=sentinels,
    )
    return pool
