"""Client of the kvshelf KV-cache persistence service."""

import logging
from typing import TYPE_CHECKING

from kvshelf_client.answers import Health, Namespace, Resume, StoreResult
from kvshelf_client.client import Client
from kvshelf_client.errors import Fault, KvshelfError
from kvshelf_client.landing import Loaded
from kvshelf_client.nodes import Nodes
from kvshelf_client.plans import Plan, Slot
from kvshelf_client.request_ids import with_request_id
from kvshelf_client.requests import NamespaceSpec, StoreRecord
from kvshelf_client.transport import Tls
from kvshelf_client.words import MissReason, Provenance, RecordClass

if TYPE_CHECKING:
    from kvshelf_client.aio import AsyncClient
    from kvshelf_client.aio_nodes import AsyncNodes

__all__ = [
    "AsyncClient",
    "AsyncNodes",
    "Client",
    "Fault",
    "Health",
    "KvshelfError",
    "Loaded",
    "MissReason",
    "Namespace",
    "NamespaceSpec",
    "Nodes",
    "Plan",
    "Provenance",
    "RecordClass",
    "Resume",
    "Slot",
    "StoreRecord",
    "StoreResult",
    "Tls",
    "with_request_id",
]


logging.getLogger(__name__).addHandler(logging.NullHandler())  # Nothing is printed unless the engine wants it.


def __getattr__(name: str) -> object:
    """The clients for asyncio, when they are first asked for: importing asyncio takes longer than all the rest."""
    if name == "AsyncClient":
        from kvshelf_client.aio import AsyncClient

        return AsyncClient
    if name == "AsyncNodes":
        from kvshelf_client.aio_nodes import AsyncNodes

        return AsyncNodes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
