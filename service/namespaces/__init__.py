"""Namespaces: what makes two KV bytes interchangeable, and the keys of the blocks in them."""

from service.namespaces.errors import (
    Difference,
    NamespaceConflictError,
    NamespaceError,
    NamespaceLimitError,
    UnknownNamespaceError,
)
from service.namespaces.namespace import MAX_EXTRA_BYTES, Namespace, make_namespace
from service.namespaces.registry import NamespaceRegistry
from service.namespaces.spec import KVSHELF_SCHEME, NamespaceSpec

__all__ = [
    "KVSHELF_SCHEME",
    "MAX_EXTRA_BYTES",
    "Difference",
    "Namespace",
    "NamespaceConflictError",
    "NamespaceError",
    "NamespaceLimitError",
    "NamespaceRegistry",
    "NamespaceSpec",
    "UnknownNamespaceError",
    "make_namespace",
]
