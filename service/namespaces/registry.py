"""The registered namespaces, named per tenant, kept in a catalog so that they survive a restart."""

import hashlib
import threading
from collections.abc import Callable, Sequence

from kvshelf_client.names import RULE, is_name
from service.access import OPERATOR, Principal, ScopeError
from service.namespaces.errors import (
    NamespaceConflictError,
    NamespaceError,
    NamespaceLimitError,
    UnknownNamespaceError,
)
from service.namespaces.namespace import Namespace, make_namespace
from service.namespaces.spec import NamespaceSpec, spec_from_document
from service.settings import SharedNamespace
from storage.catalog import Catalog, CatalogError, CorruptDocumentError

_ALL = object()
"""Every tenant, as a reader."""


class NamespaceRegistry:
    """Thread-safe. :meth:`get` and :meth:`list` never block on the disk; :meth:`register` does.

    Args:
        catalog: where the specs are kept. What it holds is loaded at once.
        max_namespaces: one more of a tenant is refused; those already kept are always loaded.
        max_block_bytes: the largest block of one shard that the SSD shelf of a tenant can keep.
        max_snapshot_bytes: the largest snapshot of one shard.
        shared: namespaces that other tenants may read.

    Raises:
        CatalogError: a kept namespace is corrupt or does not fit the settings; the text names its file.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        max_namespaces: int,
        max_block_bytes: Callable[[str], int],
        max_snapshot_bytes: int,
        shared: Sequence[SharedNamespace] = (),
    ) -> None:
        self._catalog = catalog
        self._max_namespaces = max_namespaces
        self._max_block_bytes = max_block_bytes
        self._max_snapshot_bytes = max_snapshot_bytes
        self._shared = {(reader, one.namespace): one.tenant for one in shared for reader in one.readers or (_ALL,)}
        self._lock = threading.Lock()
        # By tenant and name, and by name alone under None, for whoever asks where there are no tenants: what is
        # another's is not found, as what never was, and in the same way.
        # Replaced as a whole by each registration, so that readers need no lock.
        self._known: dict[tuple[str | None, str], Namespace] = {}
        for namespace in map(self._load, catalog.names()):
            self._known |= _entries(namespace)
        self._tenants = {one.namespace_id: one.spec.tenant for one in self._all()}

    def register(self, principal: Principal, name: str, spec: NamespaceSpec) -> tuple[Namespace, bool]:
        """The caller's namespace of a name, and whether this call made it; durable when it returns.

        Raises:
            ScopeError: the spec names a tenant that is not the caller's.
            NamespaceError: a bad name, or a record would be larger than its tier keeps.
            NamespaceConflictError: the name stands for something else.
            NamespaceLimitError: there are ``max_namespaces`` already.
            CatalogError: it could not be kept.
        """
        if not is_name(name):
            raise NamespaceError("name", f"must be {RULE}")
        if spec.tenant == OPERATOR or principal.tenant not in (None, spec.tenant):
            raise ScopeError("a namespace is registered by a token of its tenant, and the operator has none")
        requested = make_namespace(name, spec)
        with self._lock:
            registered = self._known.get((principal.tenant, name))
            if registered is not None:
                if registered.fingerprint != requested.fingerprint:
                    raise NamespaceConflictError(name, registered.spec.differences(spec))
                return registered, False
            self._check_new(principal, requested)
            document = {"fingerprint": requested.fingerprint.hex(), "name": name, "spec": spec.document()}
            self._catalog.write(_document_name(spec.tenant, name), document)
            self._known = self._known | _entries(requested)
            self._tenants = {**self._tenants, requested.namespace_id: spec.tenant}
            return requested, True

    def withdraw(self, tenant: str, name: str) -> None:
        """Let nobody get at a tenant's namespace any more, until it is registered again or the service starts anew.

        Whose it is stays known, so that what is stored in it can be found and erased.
        """
        with self._lock:
            gone = self._known.get((tenant, name))
            self._known = {key: one for key, one in self._known.items() if one is not gone}

    def remove(self, tenant: str, name: str) -> None:
        """Forget a namespace that was withdrawn, durably, unless it was registered again meanwhile.

        Raises:
            CatalogError: it could not be removed.
        """
        with self._lock:
            if (tenant, name) not in self._known:
                # Before namespaces were named per tenant the document had the name alone.
                _ = self._catalog.delete(_document_name(tenant, name)) or self._catalog.delete(name)
                self._tenants = {one.namespace_id: one.spec.tenant for one in self._all()}

    def get(self, principal: Principal, name: str) -> Namespace:
        """The namespace that the caller knows by a name: its own, else one of another tenant that it may read.

        Raises:
            UnknownNamespaceError: there is none; any other of another tenant is none.
        """
        own = self._known.get((principal.tenant, name))
        shared = self._known.get((self._sharer(principal.tenant, name), name))
        if own is None and shared is None:
            raise UnknownNamespaceError(name)
        return own or shared  # type: ignore[return-value]

    def get_writable(self, principal: Principal, name: str) -> Namespace:
        """As :meth:`get`, for a caller that is going to change what is in it.

        Raises:
            ScopeError: it is another tenant's, who lets the caller read it.
        """
        namespace = self.get(principal, name)
        if principal.tenant not in (None, namespace.spec.tenant):
            raise ScopeError(f"the namespace {name!r} is shared for reading; only its tenant changes it")
        return namespace

    def list(self, principal: Principal) -> Sequence[Namespace]:
        """The caller's own namespaces, by name; all there are, for the operator."""
        return self._sorted(lambda one: principal.is_operator or one.spec.tenant == principal.tenant)

    def list_readable(self, principal: Principal) -> Sequence[Namespace]:
        """As :meth:`list`, and those of other tenants that the caller may read."""
        own = {one.name for one in self.list(principal)}
        return self._sorted(
            lambda one: (
                principal.is_operator
                or one.spec.tenant == principal.tenant
                or (one.spec.tenant == self._sharer(principal.tenant, one.name) and one.name not in own)
            )
        )

    def _sorted(self, is_wanted: Callable[[Namespace], bool]) -> Sequence[Namespace]:
        return sorted(filter(is_wanted, self._all()), key=lambda namespace: (namespace.name, namespace.spec.tenant))

    def _sharer(self, tenant: str | None, name: str) -> str:
        """Who shares a namespace of that name with a tenant; nobody's name where nobody does."""
        return self._shared.get((tenant, name)) or self._shared.get((_ALL, name)) or OPERATOR

    def tenant_of(self, namespace_id: bytes) -> str | None:
        """The tenant of the namespace with that id; None where there is none. Quick: asked for each record."""
        return self._tenants.get(namespace_id)

    def check_names(self) -> None:
        """Raise CatalogError when two tenants have a namespace of one name: without tokens names must do."""
        for namespace in self._all():
            other = self._known[None, namespace.name]
            if other is not namespace:
                tenants = f"{other.spec.tenant!r} and {namespace.spec.tenant!r}"
                raise CatalogError(
                    f"the tenants {tenants} both have a namespace {namespace.name!r}, so it takes tokens to tell them"
                    " apart: set access.token_file"
                )

    def _all(self) -> Sequence[Namespace]:
        return [namespace for (tenant, _), namespace in self._known.items() if tenant is not None]

    def _check_new(self, principal: Principal, requested: Namespace) -> None:
        self._check_record_bytes(requested)
        if sum(principal.tenant in (None, one.spec.tenant) for one in self._all()) >= self._max_namespaces:
            raise NamespaceLimitError(self._max_namespaces)
        for other in self._all():
            same_id = other.namespace_id == requested.namespace_id
            if same_id and other.fingerprint != requested.fingerprint:
                raise NamespaceError("salt", "this namespace's record ids would run into those of another; change it")

    def _check_record_bytes(self, namespace: Namespace) -> None:
        most = self._max_block_bytes(namespace.spec.tenant)
        if namespace.shard_block_bytes > most:
            text = (
                f"a block of {namespace.shard_block_bytes} bytes a shard is larger than a segment takes,"
                f" {most}; use smaller blocks, more shards or a larger budget of the store"
            )
            raise NamespaceError("block_tokens", text)
        if namespace.shard_snapshot_bytes > self._max_snapshot_bytes:
            text = (
                f"a snapshot of {namespace.shard_snapshot_bytes} bytes a shard is over the setting"
                f" limits.max_snapshot_bytes = {self._max_snapshot_bytes}"
            )
            raise NamespaceError("profile", text)

    def _load(self, document_name: str) -> Namespace:
        document = self._catalog.read(document_name)
        path = self._catalog.directory / f"{document_name}.json"
        try:
            # Before namespaces were named per tenant the document had the name alone.
            namespace = make_namespace(document.get("name", document_name), spec_from_document(document["spec"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDocumentError(path, str(error)) from None
        if namespace.fingerprint.hex() != document.get("fingerprint"):
            raise CorruptDocumentError(path, "its fields make another fingerprint than the one it was kept with")
        try:
            self._check_record_bytes(namespace)
        except NamespaceError as error:
            what = f"namespace {namespace.name!r} in {path}"
            raise CatalogError(f"{what}: {error}; raise the setting or remove the file") from None
        return namespace


def _entries(namespace: Namespace) -> dict[tuple[str | None, str], Namespace]:
    return {(tenant, namespace.name): namespace for tenant in (namespace.spec.tenant, None)}


def _document_name(tenant: str, name: str) -> str:
    """A name for the catalog that no other namespace has: tenants may be written in any letters."""
    digest = hashlib.sha256(f"{tenant}\0{name}".encode()).hexdigest()
    return f"{name[:80]}.{digest[:32]}"
