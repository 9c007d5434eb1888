"""What a client is made with, checked: a mistake there is an error at once, and not a surprise under load."""

from math import inf, isnan
from typing import TypedDict

from kvshelf_client.transport import Tls, TransportOptions

BUDGET_SECONDS = 2.0
"""The time a call has, if neither it nor its client is given another one."""


class ClientOptions(TypedDict, total=False):
    """What a client takes beside the address. All may be left out.

    - ``budget_seconds`` (2): the time a call has, if it is not given another one. It is over then, whatever happens.
    - ``strict`` (False): raise a :class:`~kvshelf_client.errors.KvshelfError` where a call comes to nothing, instead of
      answering that there is nothing.
    - ``token`` (none): sent with every request.
    - ``tls``: for encrypted addresses, whom to trust and what to show; see :class:`~kvshelf_client.transport.Tls`.
    - ``connect_seconds`` (0.5): the longest wait for a connection, inside the budget.
    - ``read_seconds`` (all of the budget): the longest silence of the service within a call.
    - ``max_connections`` (64): more calls than that at a time wait for each other.
    - ``local`` (True): over HTTP, fetch from the service's files where it is on this machine and allows it.
    """

    budget_seconds: float
    strict: bool
    token: str | None
    tls: Tls
    connect_seconds: float
    read_seconds: float
    max_connections: int
    local: bool


def checked(options: ClientOptions) -> ClientOptions:
    """The options of a client, if all of them are some.

    Raises:
        TypeError: there is no such option. ValueError: one has a value of no meaning; it is named.
    """
    unknown = sorted(options.keys() - ClientOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"a client has no option {unknown[0]!r}, only {', '.join(ClientOptions.__annotations__)}")
    for name in ("budget_seconds", "connect_seconds", "read_seconds"):
        if name in options:
            _check_seconds(name, options[name])
    most = options.get("max_connections", 1)
    if not isinstance(most, int) or most < 1:
        raise ValueError(f"max_connections is a whole number from 1 on, got {most!r}")
    if not isinstance(options.get("token"), (str, type(None))):
        raise ValueError("token is a text")
    if not isinstance(options.get("tls", Tls()), Tls):
        raise ValueError(f"tls is a Tls, got {type(options['tls']).__name__}")
    return options


def transport_options(options: ClientOptions) -> TransportOptions:
    """What of a client's options goes to its transport."""
    return TransportOptions(
        token=options.get("token"),
        tls=options.get("tls", Tls()),
        connect_seconds=options.get("connect_seconds", 0.5),
        read_seconds=options.get("read_seconds", inf),
        max_connections=options.get("max_connections", 64),
        local=options.get("local", True),
    )


def check_budget(seconds: float) -> float:
    """The budget of one call. It may be over before the call begins: engines give what is left of their own.

    Raises:
        ValueError: it is no number.
    """
    if not isinstance(seconds, (int, float)) or isnan(seconds):
        raise ValueError(f"budget_seconds is a number, got {seconds!r}")
    return seconds


def _check_seconds(name: str, seconds: object) -> None:
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ValueError(f"{name} is a number above 0, got {seconds!r}")
