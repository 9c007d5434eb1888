"""What goes wrong with namespaces."""

from collections.abc import Sequence
from typing import NamedTuple

Value = str | int | None


class NamespaceError(ValueError):
    """A field of a namespace, or of a request to one, is out of bounds. ``field`` is its name."""

    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(f"{field}: {text}")


class UnknownNamespaceError(KeyError):
    """No namespace has this name. ``name`` is it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)

    def __str__(self) -> str:
        return f"no namespace is called {self.name[:128]!r}: it was never registered, or it was erased"


class Difference(NamedTuple):
    """A field that was registered with one value and is now asked for with another."""

    field: str
    registered: Value
    requested: Value


class NamespaceConflictError(Exception):
    """Something else is registered under the name. ``differences`` has at least one entry."""

    def __init__(self, name: str, differences: Sequence[Difference]) -> None:
        self.name = name
        self.differences = tuple(differences)
        told = "; ".join(f"{d.field} is {d.registered!r}, not {d.requested!r}" for d in self.differences)
        super().__init__(f"namespace {name!r} is registered with other fields: {told}")


class NamespaceLimitError(Exception):
    """As many namespaces are registered as the setting ``max_namespaces`` allows."""

    def __init__(self, max_namespaces: int) -> None:
        self.max_namespaces = max_namespaces
        super().__init__(f"{max_namespaces} namespaces are registered, the most that limits.max_namespaces allows")
