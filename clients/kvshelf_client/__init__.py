"""Client of the kvshelf KV-cache persistence service."""

from kvshelf_client.client import Client, fallback_of
from kvshelf_client.errors import KvshelfError
from kvshelf_client.requests import NamespaceSpec, StoreRecord

__all__ = ["Client", "KvshelfError", "NamespaceSpec", "StoreRecord", "fallback_of"]
