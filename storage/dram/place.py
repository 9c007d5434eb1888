"""Where a pool is, as its URL says: one server, a master that Sentinels watch, or a cluster."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis.connection import parse_url
from redis.credentials import UsernamePasswordCredentialProvider

_URL_OPTIONS = {"connection_class", "db", "host", "password", "path", "port", "username"}
_SEVERAL = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^@/]*)@)?([^/?@]+)(?:/([^?/]*))?(/[0-9]+)?(\?.*)?")
_FORMS = "redis://, rediss:// or unix://, redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE"


class PoolKind(StrEnum):
    """What is there."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, repr=False)
class PoolPlace:
    """A parsed URL. ``options`` are redis-py's for a connection to ``hosts[0]``, the password where no repr shows it.

    ``hosts`` are the servers that the URL names: of a cluster any of its nodes, of a watched master its Sentinels.
    """

    kind: PoolKind
    options: dict[str, Any]
    hosts: tuple[tuple[str, int], ...]
    service: str = ""

    @property
    def where(self) -> str:
        """The place without credentials, for logs."""
        if "path" in self.options:
            return str(self.options["path"])
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{hosts}/{self.service}" if self.service else hosts

    def at(self, host: str, port: int) -> "PoolPlace":
        """One server, with the same credentials and encryption."""
        return PoolPlace(PoolKind.SERVER, {**self.options, "host": host, "port": port}, ((host, port),))


def pool_place(url: str) -> PoolPlace:
    """Parse the URL of a pool.

    Raises:
        ValueError: it is of no known form, or sets what is not its to set. The message does not quote it.
    """
    several = _SEVERAL.fullmatch(url)
    if several is None:
        options = _options_of(url)
        host = (str(options.get("host", "localhost")), int(options.get("port", 6379)))
        return PoolPlace(PoolKind.SERVER, options, (host,))
    scheme, kind, user, names, service, database, query = several.groups()
    user = f"{user}@" if user else ""
    each = [_options_of(f"{scheme}://{user}{name}{database or ''}{query or ''}") for name in names.split(",")]
    hosts = tuple((str(one.get("host", "localhost")), int(one.get("port", _PORTS[kind]))) for one in each)
    if kind == PoolKind.SENTINEL and not service:
        raise ValueError("a Redis URL for Sentinels names the service they watch: redis+sentinel://HOST:PORT/SERVICE")
    if kind == PoolKind.CLUSTER and (service or database):
        raise ValueError("a Redis cluster has no databases: redis+cluster://HOST:PORT,HOST:PORT")
    return PoolPlace(PoolKind(kind), each[0], hosts, service or "")


_PORTS = {"cluster": 6379, "sentinel": 26379}


def _options_of(url: str) -> dict[str, Any]:
    """What redis-py makes of a URL, with the password where no ``repr`` shows it."""
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError:
        raise ValueError(f"the Redis URL is not of the form {_FORMS}") from None
    strange = sorted(name for name in options if name not in _URL_OPTIONS and not name.startswith("ssl_"))
    if strange:
        raise ValueError(f"the Redis URL may not set {', '.join(strange)}")
    username, password = options.pop("username", None), options.pop("password", None)
    if username or password:
        options["credential_provider"] = UsernamePasswordCredentialProvider(username, password)
    return options
