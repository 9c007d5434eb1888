"""The keys that records are sealed with: read from a file or a command, by tenant, and read again while it runs."""

from service.sealing.book import KeyBook
from service.sealing.source import KeySource, KeySourceError

__all__ = ["KeyBook", "KeySource", "KeySourceError"]
