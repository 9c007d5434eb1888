"""The contract of access: a face hands a token in and gets a principal back, which it passes on to the verbs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

OPERATOR: Final = "*"
"""The tenant of the service's operator. It sees and erases across tenants, and has no records of its own."""


class Scope(StrEnum):
    """What a token may be used for. None implies another: a token has the scopes that are listed for it."""

    READ = "read"
    """Plans, fetches, leases, look-ups, statistics."""
    WRITE = "write"
    """Register namespaces, store records, delete single records."""
    ADMIN = "admin"
    """Erase by more than keys: namespaces, revisions, all of a tenant."""


class AccessDeniedError(Exception):
    """It is not known who asks: no token, or none that is taken. Over HTTP a 401. Never has the token in its text."""


class ScopeError(Exception):
    """It is known who asks, and they may not do that. Over HTTP a 403."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    ``tenant`` decides what there is: namespaces, leases, plans and jobs of others do not exist for it. It is None
    where no tokens are configured: then anybody on this machine sees everything. ``token_id`` is for logs.
    """

    tenant: str | None
    scopes: frozenset[Scope]
    token_id: str = ""

    @property
    def is_operator(self) -> bool:
        """Whether it may see and erase across tenants."""
        return self.tenant in (None, OPERATOR)

    def require(self, scope: Scope) -> None:
        """Raise ScopeError unless it has that scope."""
        if scope not in self.scopes:
            raise ScopeError(f"this token lacks the scope {scope.value!r}")

    def require_operator(self, scope: Scope) -> None:
        """Raise ScopeError unless it has that scope over the whole service."""
        self.require(scope)
        if not self.is_operator:
            raise ScopeError(f"this concerns all tenants; it takes a token of the operator, tenant {OPERATOR!r}")


ANYBODY: Final = Principal(None, frozenset(Scope))
"""Everybody, where no tokens are configured."""


class Access(ABC):
    """Tells who asks. Thread-safe, and quick enough for the event loop."""

    @property
    @abstractmethod
    def is_guarded(self) -> bool:
        """Whether tokens are asked for at all."""

    @abstractmethod
    def authenticate(self, token: str | None) -> Principal:
        """The principal of a token; None where none was sent.

        Raises:
            AccessDeniedError: see there.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Take over what was changed where the tokens are kept. Called about once a second; may block."""

    @abstractmethod
    def trouble(self) -> str | None:
        """Why the tokens in force are not those that are kept, in words for the operator; None where they are."""
