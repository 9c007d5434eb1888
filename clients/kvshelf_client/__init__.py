"""Client of the kvshelf KV-cache persistence service."""

from kvshelf_client.client import Client, NamespaceSpec, fallback_of
from kvshelf_client.errors import KvshelfError
from kvshelf_client.upload import StoreRecord

__all__ = ["Client", "KvshelfError", "NamespaceSpec", "StoreRecord", "fallback_of"]
