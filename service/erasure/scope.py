"""What is to be erased."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvshelf_client.words import RecordClass
from service.access import Principal
from service.namespaces import Namespace, NamespaceRegistry, UnknownNamespaceError
from service.namespaces.namespace import KEPT_KEY_BYTES


class ScopeFieldError(ValueError):
    """A condition is out of bounds, or there is none. ``field`` is its name."""

    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(f"{field}: {text}")


@dataclass(frozen=True, slots=True)
class ErasureScope:
    """Conditions that must all hold; those that are None or empty do not count.

    The first four choose namespaces, the others records in them. ``keys`` and ``key_prefix`` are of block keys in
    hexadecimal; of those the first 24 bytes are kept, so a prefix has at most as many. Times are wall-clock seconds:
    stored at ``stored_from`` or later, and before ``stored_before``.

    Raises:
        ScopeFieldError: see there.
    """

    tenant: str | None = None
    namespace: str | None = None
    model: str | None = None
    weights_revision: str | None = None
    record_class: str | None = None
    keys: tuple[str, ...] = ()
    key_prefix: str = ""
    stored_from: float | None = None
    stored_before: float | None = None

    def __post_init__(self) -> None:
        if not any(value not in (None, "", ()) for value in asdict(self).values()):
            raise ScopeFieldError("scope", "name what is to be erased: a namespace, a tenant, a revision, keys, times")
        if self.keys and self.namespace is None:
            raise ScopeFieldError("keys", "keys are of one namespace: name it")
        try:
            sizes = {len(bytes.fromhex(key)) for key in self.keys}
            prefix_bytes = len(bytes.fromhex(self.key_prefix))
        except ValueError:
            raise ScopeFieldError("keys", "keys and key_prefix take hexadecimal digits, two a byte") from None
        if sizes - {32} or prefix_bytes > KEPT_KEY_BYTES:
            raise ScopeFieldError("keys", f"a key has 32 bytes, a key_prefix at most {KEPT_KEY_BYTES}")

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the chosen namespaces."""
        return not (self.keys or self.key_prefix or self.record_class or self._has_times)

    @property
    def kinds(self) -> tuple[RecordClass, ...]:
        """The classes of records it is about."""
        return tuple(RecordClass) if self.record_class is None else (RecordClass[self.record_class.upper()],)

    @property
    def _has_times(self) -> bool:
        return self.stored_from is not None or self.stored_before is not None

    def covers(self, stored_at: float) -> bool:
        """Whether a record stored then is in the range of times."""
        return (self.stored_from is None or stored_at >= self.stored_from) and (
            self.stored_before is None or stored_at < self.stored_before
        )

    def targets(self, namespaces: NamespaceRegistry, principal: Principal) -> Sequence[Namespace]:
        """The caller's namespaces that are meant.

        Raises:
            UnknownNamespaceError: one was named that there is not.
        """
        found = [one for one in namespaces.list(principal) if self._means(one)]
        if self.namespace is not None and not found:
            raise UnknownNamespaceError(self.namespace)
        return found

    def document(self) -> dict[str, Any]:
        """The conditions that count."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", ())}

    def _means(self, namespace: Namespace) -> bool:
        spec = namespace.spec
        wanted = (self.tenant, self.namespace, self.model, self.weights_revision)
        there = (spec.tenant, namespace.name, spec.model, spec.weights_revision)
        return all(one is None or one == other for one, other in zip(wanted, there, strict=True))


def scope_from_document(document: dict[str, Any]) -> ErasureScope:
    """The inverse of :meth:`ErasureScope.document`."""
    return ErasureScope(**{**document, "keys": tuple(document.get("keys", ()))})
