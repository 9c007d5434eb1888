"""The registered namespaces, kept in a catalog so that they survive a restart."""

import re
import threading

from service.namespaces.errors import (
    NamespaceConflictError,
    NamespaceError,
    NamespaceLimitError,
    UnknownNamespaceError,
)
from service.namespaces.namespace import Namespace, make_namespace
from service.namespaces.spec import NamespaceSpec, spec_from_document
from storage.catalog import Catalog, CatalogError, CorruptDocumentError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


class NamespaceRegistry:
    """Thread-safe. :meth:`get` and :meth:`list` never block on the disk; :meth:`register` does.

    Args:
        catalog: where the specs are kept. What it holds is loaded at once.
        max_namespaces: one more is refused; those already kept are always loaded.
        max_block_bytes: the largest block of one shard that the SSD tier can keep.
        max_snapshot_bytes: the largest snapshot of one shard.

    Raises:
        CatalogError: a kept namespace is corrupt or does not fit the settings; the text names its file.
    """

    def __init__(self, catalog: Catalog, *, max_namespaces: int, max_block_bytes: int, max_snapshot_bytes: int) -> None:
        self._catalog = catalog
        self._max_namespaces = max_namespaces
        self._max_block_bytes = max_block_bytes
        self._max_snapshot_bytes = max_snapshot_bytes
        self._lock = threading.Lock()
        # Replaced as a whole by each registration, so that readers need no lock.
        self._namespaces = {name: self._load(name) for name in catalog.names()}

    def register(self, name: str, spec: NamespaceSpec) -> tuple[Namespace, bool]:
        """The namespace of a name, and whether this call made it; durable when it returns.

        Raises:
            NamespaceError: a bad name, or a record would be larger than its tier keeps.
            NamespaceConflictError: the name stands for something else.
            NamespaceLimitError: there are ``max_namespaces`` already.
            CatalogError: it could not be kept.
        """
        if _NAME.fullmatch(name) is None or name in (".", ".."):
            raise NamespaceError("name", "must be 1 to 128 of A-Z a-z 0-9 . _ - and not . or ..")
        requested = make_namespace(name, spec)
        with self._lock:
            registered = self._namespaces.get(name)
            if registered is not None:
                if registered.fingerprint != requested.fingerprint:
                    raise NamespaceConflictError(name, registered.spec.differences(spec))
                return registered, False
            self._check_new(requested)
            document = {"fingerprint": requested.fingerprint.hex(), "spec": spec.document()}
            self._catalog.write(name, document)
            self._namespaces = {**self._namespaces, name: requested}
            return requested, True

    def get(self, name: str) -> Namespace:
        """The namespace of a name.

        Raises:
            UnknownNamespaceError: there is none.
        """
        namespace = self._namespaces.get(name)
        if namespace is None:
            raise UnknownNamespaceError(name)
        return namespace

    def list(self) -> list[Namespace]:
        """All namespaces, by name."""
        return sorted(self._namespaces.values(), key=lambda namespace: namespace.name)

    def _check_new(self, requested: Namespace) -> None:
        self._check_record_bytes(requested)
        if len(self._namespaces) >= self._max_namespaces:
            raise NamespaceLimitError(self._max_namespaces)
        for other in self._namespaces.values():
            same_id = other.namespace_id == requested.namespace_id
            if same_id and other.fingerprint != requested.fingerprint:
                raise NamespaceError("salt", f"this namespace's record ids would run into those of {other.name!r}")

    def _check_record_bytes(self, namespace: Namespace) -> None:
        if namespace.shard_block_bytes > self._max_block_bytes:
            text = (
                f"a block of {namespace.shard_block_bytes} bytes a shard is larger than a segment takes,"
                f" {self._max_block_bytes}; use smaller blocks, more shards or a larger store.budget_bytes"
            )
            raise NamespaceError("block_tokens", text)
        if namespace.shard_snapshot_bytes > self._max_snapshot_bytes:
            text = (
                f"a snapshot of {namespace.shard_snapshot_bytes} bytes a shard is over the setting"
                f" limits.max_snapshot_bytes = {self._max_snapshot_bytes}"
            )
            raise NamespaceError("profile", text)

    def _load(self, name: str) -> Namespace:
        document = self._catalog.read(name)
        path = self._catalog.directory / f"{name}.json"
        try:
            namespace = make_namespace(name, spec_from_document(document["spec"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDocumentError(path, str(error)) from None
        if namespace.fingerprint.hex() != document.get("fingerprint"):
            raise CorruptDocumentError(path, "its fields make another fingerprint than the one it was kept with")
        try:
            self._check_record_bytes(namespace)
        except NamespaceError as error:
            raise CatalogError(f"namespace {name!r} in {path}: {error}; raise the setting or remove the file") from None
        return namespace
