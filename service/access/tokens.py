"""Tokens and the file that lists them.

A token is ``kvs_ID_SECRET``: its id, which is no secret, and 256 random bits in hexadecimal. The file has the SHA-256
of the whole token and never the token. A slow hash would add nothing: nobody guesses 256 random bits, however fast
each attempt is, and every request would have to pay for it.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from service.access.base import OPERATOR, Principal, Scope

PREFIX: Final = "kvs"
SECRET_BYTES: Final = 32
MAX_FILE_BYTES: Final = 4 << 20
MAX_TENANT_BYTES: Final = 64
_ID = "[a-z0-9-]{1,64}"


class TokenFileError(ValueError):
    """The file of tokens cannot be used; the text says why, and has no part of a token or of a hash in it."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token: never the token itself. ``digest`` is its SHA-256; times are wall-clock seconds."""

    principal: Principal
    digest: bytes
    expires_at: float | None

    @property
    def selector(self) -> str:
        """What the token starts with."""
        return selector_of(self.principal.token_id)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=f"^{_ID}$")]
    tenant: Annotated[str, Field(min_length=1)]
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    expires: AwareDatetime | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: list[_Entry] = []


def selector_of(token_id: str) -> str:
    """What a token of that id starts with, up to its secret."""
    return f"{PREFIX}_{token_id}"


def digest_of(token: str) -> bytes:
    """The SHA-256 (32 bytes) that the file has of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def make_token(token_id: str, random_bytes: Callable[[int], bytes]) -> str:
    """A new token.

    Raises:
        ValueError: the id is not 1 to 64 of a-z 0-9 and -.
    """
    if re.fullmatch(_ID, token_id) is None:
        raise ValueError("the id of a token is 1 to 64 of a-z 0-9 and -")
    return f"{selector_of(token_id)}_{random_bytes(SECRET_BYTES).hex()}"


def check_tenant(tenant: str) -> str:
    """The name of a tenant; raises ValueError unless it is 1 to 64 bytes of printable UTF-8."""
    if not tenant or not tenant.isprintable() or len(tenant.encode()) > MAX_TENANT_BYTES:
        raise ValueError(f"a tenant is 1 to {MAX_TENANT_BYTES} bytes of printable UTF-8")
    return tenant


def describe_entry(token: str, tenant: str, scopes: frozenset[Scope], expires: datetime | None) -> str:
    """The lines of the file for a token, in TOML."""
    token_id = token.removeprefix(f"{PREFIX}_").rpartition("_")[0]
    listed = ", ".join(f'"{scope}"' for scope in Scope if scope in scopes)
    escaped = check_tenant(tenant).replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        "[[token]]",
        f'id = "{token_id}"',
        f'tenant = "{escaped}"',
        f"scopes = [{listed}]",
        f'sha256 = "{digest_of(token).hex()}"',
    ]
    if expires is not None:
        lines.append(f"expires = {expires.astimezone(UTC).isoformat(timespec='seconds')}")
    return "\n".join(lines)


def read_tokens(data: bytes) -> list[Token]:
    """The tokens of a file.

    Raises:
        TokenFileError: see there.
    """
    if len(data) > MAX_FILE_BYTES:
        raise TokenFileError(f"it has more than {MAX_FILE_BYTES} bytes")
    try:
        document = tomllib.loads(data.decode())
    except ValueError as error:
        raise TokenFileError(f"it is no TOML: {type(error).__name__}") from None
    try:
        entries = _File.model_validate(document).token
    except ValidationError as error:
        raise TokenFileError(_explain(error, document)) from None
    tokens = [_token(_label(at, entry.id), entry) for at, entry in enumerate(entries)]
    known: set[str] = set()
    for at, entry in enumerate(entries):
        if entry.id in known:
            raise TokenFileError(f"{_label(at, entry.id)} has the id of an earlier one; each takes its own")
        known.add(entry.id)
    return tokens


def _token(label: str, entry: _Entry) -> Token:
    try:
        tenant = check_tenant(entry.tenant)
    except ValueError as error:
        raise TokenFileError(f"{label}: {error}, or {OPERATOR!r} for the operator") from None
    principal = Principal(tenant, entry.scopes, entry.id)
    return Token(principal, bytes.fromhex(entry.sha256), entry.expires.timestamp() if entry.expires else None)


def _label(at: int, token_id: object) -> str:
    """Which entry: its number from 1, and its id, unless that is none or may be a hash in the wrong line."""
    is_id = isinstance(token_id, str) and re.fullmatch(_ID, token_id) and len(token_id) < 2 * SECRET_BYTES
    return f"token {at + 1} ({token_id})" if is_id else f"token {at + 1}"


def _explain(error: ValidationError, document: dict[str, Any]) -> str:
    """What is wrong, field by field, without a word of what stands there: nor the name of a field that there is not."""
    problems: list[Any] = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{_place(one['loc'], document)}: {one['msg']}" for one in problems[:5])


def _place(where: tuple[int | str, ...], document: dict[str, Any]) -> str:
    match where:
        case ("token", int(at), *fields):
            entry = document["token"][at]
            label = _label(at, entry.get("id") if isinstance(entry, dict) else None)
            return ".".join([label, *map(_field, fields)])
    return ".".join(map(_field, where))


def _field(part: int | str) -> str:
    return str(part) if isinstance(part, int) or part in {"token", *_Entry.model_fields} else "an unknown field"
