"""Which addresses and host names stand for this machine alone.

A page in somebody's browser can make the browser ask any address, this machine's loopback one too, under a name that
the page's author controls (DNS rebinding). The name then stands in the request's Host header, and gives it away.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

_MOST_CHARACTERS = 512
"""Of a URL with a name in it, which has 253 at most; longer ones are not even looked at."""
_REMEMBERED = 64


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can mean this address or name."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AllowedHosts:
    """The names under which a service without tokens may be asked: the loopback ones, and ``names``."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.lower() for name in names)
        # A client asks by the same name each time, and an address takes a while to parse.
        self._allows_known = lru_cache(_REMEMBERED)(self._allows)

    def allow(self, host: str | None, origin: str | None) -> bool:
        """Whether a request with these headers, None where it has none, may come from a program of this machine.

        ``host`` is a name or address with or without a port. ``origin`` is sent by browsers for the page that asks.
        """
        return (host is None or self._allows_known(f"//{host}")) and (origin is None or self._allows_known(origin))

    def _allows(self, url: str) -> bool:
        if len(url) > _MOST_CHARACTERS:
            return False
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._names
