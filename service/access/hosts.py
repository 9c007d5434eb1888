"""Which addresses and host names stand for this machine alone.

A page in somebody's browser can make the browser ask any address, this machine's loopback one too, under a name that
the page's author controls (DNS rebinding). The name then stands in the request's Host header, and gives it away.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit


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

    def allow(self, host: str | None, origin: str | None) -> bool:
        """Whether a request with these headers, None where it has none, may come from a program of this machine.

        ``host`` is a name or address with or without a port. ``origin`` is sent by browsers for the page that asks.
        """
        return (host is None or self._allows(f"//{host}")) and (origin is None or self._allows(origin))

    def _allows(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._names
