"""Small durable JSON documents, one file each: what must outlive everything, such as the registered namespaces.

A file ``NAME.json`` holds ``{"format": 1, "checksum": ..., "document": {...}}``; the checksum is xxh3_64 in hex over
the document in canonical JSON. A write goes to a temporary file that is synced and renamed over the old one, so that
a crash leaves the old document or the new one. One process at a time (:mod:`storage.lock`).
"""

import errno
import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvshelf_client.frames import checksum_of

CATALOG_FORMAT = 1
MAX_DOCUMENT_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_SUFFIX = ".json"
_TEMPORARY_SUFFIX = ".tmp"


class CatalogError(Exception):
    """A document cannot be kept: a bad name, too large, one too many, or the file system refused.

    ``is_full`` says that it is the file system, which has no room.
    """

    @property
    def is_full(self) -> bool:
        """See the class."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


class CorruptDocumentError(CatalogError):
    """A file that is not what was written. ``path`` is the file."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"{path} is corrupt ({reason}); restore it from a backup or remove it")


class Catalog:
    """The documents of one directory. Thread-safe; every method may block on the disk.

    Args:
        directory: made if it is not there. Temporary files that a crash left in it are removed.
        max_documents: one more is refused. Documents that are already there are always read.
        max_document_bytes: of a whole file.
    """

    def __init__(
        self, directory: str | Path, *, max_documents: int, max_document_bytes: int = MAX_DOCUMENT_BYTES
    ) -> None:
        self.directory = Path(directory)
        self._max_documents = max_documents
        self._max_document_bytes = max_document_bytes
        self._lock = threading.Lock()
        self.directory.mkdir(parents=True, exist_ok=True)
        _sync_directory(self.directory.parent)
        for leftover in self.directory.glob(f"*{_TEMPORARY_SUFFIX}"):
            leftover.unlink()
        self._names = {path.name.removesuffix(_SUFFIX) for path in self.directory.glob(f"*{_SUFFIX}")}

    def names(self) -> list[str]:
        """The names of all documents, sorted."""
        with self._lock:
            return sorted(self._names)

    def read(self, name: str) -> dict[str, Any]:
        """The document of a name.

        Raises:
            CorruptDocumentError: the file is too large, no JSON, of another format, or fails its checksum.
            CatalogError: there is none, or it cannot be read.
        """
        return read_document(self._path(name), self._max_document_bytes)

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document, durable when this returns; one of the same name is replaced.

        Raises:
            CatalogError: a bad name, too large, one too many, or the file system refused; nothing has changed then,
                unless the last sync of the directory failed.
        """
        path = self._path(name)
        data = _encode(document)
        if len(data) > self._max_document_bytes:
            raise CatalogError(f"document {name!r} has {len(data)} bytes, above the {self._max_document_bytes} allowed")
        with self._lock:
            if name not in self._names and len(self._names) >= self._max_documents:
                raise CatalogError(f"{self.directory} holds {len(self._names)} documents, the most allowed")
            temporary = self.directory / (name + _TEMPORARY_SUFFIX)
            try:
                _write_synced(temporary, data)
                temporary.replace(path)
                self._names.add(name)
                _sync_directory(self.directory)
            except OSError as error:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise CatalogError(f"{path} cannot be written: {error.strerror or error}") from error

    def delete(self, name: str) -> bool:
        """Forget a document, durably; returns whether it was there.

        Raises:
            CatalogError: a bad name, or the file system refused.
        """
        path = self._path(name)
        with self._lock:
            if name not in self._names:
                return False
            try:
                path.unlink(missing_ok=True)
                self._names.discard(name)
                _sync_directory(self.directory)
            except OSError as error:
                raise CatalogError(f"{path} cannot be removed: {error.strerror or error}") from error
        return True

    def _path(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise CatalogError(f"{name[:140]!r} is no name of a document: 1 to 128 of A-Z a-z 0-9 . _ -")
        return self.directory / (name + _SUFFIX)


def read_document(path: Path, max_bytes: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """The document in a file. Raises as :meth:`Catalog.read`."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise CatalogError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > max_bytes:
        raise CorruptDocumentError(path, f"more than {max_bytes} bytes")
    return _decode(path, data)


def _canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _encode(document: Mapping[str, Any]) -> bytes:
    checksum = f"{checksum_of(_canonical(document)):016x}"
    envelope = {"format": CATALOG_FORMAT, "checksum": checksum, "document": document}
    return json.dumps(envelope, indent=1, ensure_ascii=True).encode("ascii") + b"\n"


def _decode(path: Path, data: bytes) -> dict[str, Any]:
    try:
        envelope = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDocumentError(path, f"no JSON: {str(error)[:100]}") from None
    if not isinstance(envelope, dict) or not isinstance(envelope.get("document"), dict):
        raise CorruptDocumentError(path, "no document in it")
    if envelope.get("format") != CATALOG_FORMAT:
        raise CorruptDocumentError(
            path, f"format {envelope.get('format')!r:.20} is not read here, only {CATALOG_FORMAT}"
        )
    document: dict[str, Any] = envelope["document"]
    if envelope.get("checksum") != f"{checksum_of(_canonical(document)):016x}":
        raise CorruptDocumentError(path, "its checksum does not match")
    return document


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
