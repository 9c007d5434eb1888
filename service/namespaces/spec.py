"""What a namespace is registered with: everything that makes two KV bytes interchangeable."""

from dataclasses import dataclass
from typing import Any, Final

from kvshelf_client.hashing import namespace_fingerprint
from service.namespaces.errors import Difference, NamespaceError
from service.profiles import Profile, ProfileError, profile_from_document

KVSHELF_SCHEME: Final = "kvshelf-sha256"
MAX_TENANT_BYTES = 64
MAX_TEXT_BYTES = 256
MAX_SCHEME_BYTES = 64
MAX_BLOCK_TOKENS = 1 << 16
MAX_SHARDS = 1 << 10

_PLAIN_FIELDS = (
    "tenant",
    "model",
    "weights_revision",
    "block_tokens",
    "hash_scheme",
    "hash_block_tokens",
    "salt",
    "shards",
)


@dataclass(frozen=True, slots=True)
class NamespaceSpec:
    """The fields of a namespace, checked and normalised.

    ``hash_scheme`` is ``kvshelf-sha256`` or the name an engine gives its own chained hashes; with the latter
    ``hash_block_tokens`` is how many tokens one of its hashes adds, by default a whole block. ``shards`` counts the
    tensor-parallel ranks that hold different bytes.

    Raises:
        NamespaceError: a field is out of bounds or does not fit the profile; it names the field.
    """

    tenant: str
    model: str
    weights_revision: str
    profile: Profile
    block_tokens: int = 128
    hash_scheme: str = KVSHELF_SCHEME
    hash_block_tokens: int | None = None
    salt: str = ""
    shards: int = 1

    def __post_init__(self) -> None:
        _check_text("tenant", self.tenant, MAX_TENANT_BYTES)
        _check_text("model", self.model, MAX_TEXT_BYTES)
        _check_text("weights_revision", self.weights_revision, MAX_TEXT_BYTES, may_be_empty=True)
        _check_text("hash_scheme", self.hash_scheme, MAX_SCHEME_BYTES)
        _check_text("salt", self.salt, MAX_TEXT_BYTES, may_be_empty=True)
        self._check_blocks()
        self._check_hashes()
        self._check_shards()

    def _check_blocks(self) -> None:
        if not 1 <= self.block_tokens <= MAX_BLOCK_TOKENS:
            raise NamespaceError("block_tokens", f"must be from 1 to {MAX_BLOCK_TOKENS}, got {self.block_tokens}")
        try:
            self.profile.check_block_tokens(self.block_tokens)
        except ProfileError as error:
            raise NamespaceError("block_tokens", str(error)) from None

    def _check_hashes(self) -> None:
        if self.hash_scheme == KVSHELF_SCHEME:
            if self.hash_block_tokens is not None:
                raise NamespaceError("hash_block_tokens", f"goes with an engine's hash_scheme, not {KVSHELF_SCHEME}")
            return
        if self.hash_block_tokens is None:
            object.__setattr__(self, "hash_block_tokens", self.block_tokens)
        elif self.hash_block_tokens < 1 or self.block_tokens % self.hash_block_tokens:
            text = f"must divide block_tokens = {self.block_tokens}, got {self.hash_block_tokens}"
            raise NamespaceError("hash_block_tokens", text)

    def _check_shards(self) -> None:
        if not 1 <= self.shards <= MAX_SHARDS:
            raise NamespaceError("shards", f"must be from 1 to {MAX_SHARDS}, got {self.shards}")
        block_bytes, snapshot_bytes = self.profile.block_bytes(self.block_tokens), self.profile.snapshot_bytes
        for what, size in (("a block", block_bytes), ("a snapshot", snapshot_bytes)):
            if size % self.shards:
                raise NamespaceError("shards", f"{self.shards} do not divide {what} of {size} bytes evenly")

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 (32 bytes) over all fields; the layout counts by its id and its digest."""
        return namespace_fingerprint(
            {
                "tenant": self.tenant,
                "model": self.model,
                "weights_revision": self.weights_revision,
                "layout_id": self.profile.id,
                "layout_digest": self.profile.digest,
                "block_tokens": self.block_tokens,
                "hash_scheme": self.hash_scheme,
                "hash_block_tokens": self.hash_block_tokens or 0,
                "salt": self.salt,
                "shards": self.shards,
            }
        )

    def differences(self, requested: "NamespaceSpec") -> list[Difference]:
        """What another spec asks otherwise; empty where the fingerprints are equal."""
        found = [
            Difference(name, getattr(self, name), getattr(requested, name))
            for name in _PLAIN_FIELDS
            if getattr(self, name) != getattr(requested, name)
        ]
        return found + _profile_differences(self.profile, requested.profile)

    def document(self) -> dict[str, Any]:
        """The spec as plain data, the whole profile with it, as :func:`spec_from_document` takes it."""
        return {name: getattr(self, name) for name in _PLAIN_FIELDS} | {"profile": self.profile.document()}


def spec_from_document(document: dict[str, Any]) -> NamespaceSpec:
    """The inverse of :meth:`NamespaceSpec.document`.

    Raises:
        ValueError: fields are missing or unknown, or out of bounds.
    """
    if set(document) != {*_PLAIN_FIELDS, "profile"}:
        raise ValueError(f"the fields of a namespace are not {sorted(document)}")
    return NamespaceSpec(**document | {"profile": profile_from_document(document["profile"])})


def _profile_differences(registered: Profile, requested: Profile) -> list[Difference]:
    if registered.id != requested.id:
        return [Difference("profile", registered.id, requested.id)]
    if registered.digest == requested.digest:
        return []
    mine, other = registered.document(), requested.document()
    return [
        Difference(f"profile.{key}", _brief(mine.get(key)), _brief(other.get(key)))
        for key in sorted({*mine, *other} - Profile.DESCRIPTIVE)
        if mine.get(key) != other.get(key)
    ]


def _brief(value: Any) -> str | int | None:
    return value if value is None or isinstance(value, str | int) else str(value)


def _check_text(field: str, value: str, max_bytes: int, *, may_be_empty: bool = False) -> None:
    if not value and not may_be_empty:
        raise NamespaceError(field, "must not be empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise NamespaceError(field, "is no valid Unicode text") from None
    if size > max_bytes:
        raise NamespaceError(field, f"may take {max_bytes} bytes of UTF-8, not {size}")
    if not value.isprintable():
        raise NamespaceError(field, "must hold printable characters only")
