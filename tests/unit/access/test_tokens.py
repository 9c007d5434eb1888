"""Tokens, and the file that has their hashes: what is taken, what is refused, and that no secret is ever in a text."""

import os
from datetime import UTC, datetime

import pytest

from service.access import OPERATOR, Principal, Scope, TokenFileError
from service.access.tokens import MAX_FILE_BYTES, describe_entry, digest_of, make_token, read_tokens

READ_WRITE = frozenset({Scope.READ, Scope.WRITE})
HASH = "ab" * 32


def entry(**fields: object) -> bytes:
    """An entry of the file, some of its lines replaced, or left out where they are None."""
    lines = {"id": '"a"', "tenant": '"t"', "scopes": '["read"]', "sha256": f'"{HASH}"'} | fields
    return b"[[token]]\n" + b"".join(f"{name} = {value}\n".encode() for name, value in lines.items() if value)


def test_a_token_is_its_id_and_256_random_bits() -> None:
    assert make_token("a-1", lambda count: bytes(range(count))) == "kvs_a-1_" + bytes(range(32)).hex()
    assert make_token("a", os.urandom) != make_token("a", os.urandom)


@pytest.mark.parametrize("token_id", ["", "A", "a_b", "a b", "ä", "x" * 65, "a\n"])
def test_bad_ids_are_refused(token_id: str) -> None:
    with pytest.raises(ValueError, match="id of a token"):
        make_token(token_id, os.urandom)
    with pytest.raises(TokenFileError):
        read_tokens(entry(id=f'"{token_id}"'.replace("\n", "\\n")))


@pytest.mark.parametrize("tenant", ["t", OPERATOR, 'ac"me\\', "ä" * 32, "a/b: c"])
@pytest.mark.parametrize("expires", [None, datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)])
def test_what_is_described_is_read(tenant: str, expires: datetime | None) -> None:
    token = make_token("x" * 64, os.urandom)
    (found,) = read_tokens(describe_entry(token, tenant, READ_WRITE, expires).encode())
    assert found.principal == Principal(tenant, READ_WRITE, "x" * 64)
    assert found.digest == digest_of(token)
    assert found.selector == "kvs_" + "x" * 64
    assert found.expires_at == (expires.timestamp() if expires else None)


def test_a_file_has_none_one_or_many_tokens() -> None:
    assert read_tokens(b"") == []
    assert len(read_tokens(entry())) == 1
    assert [token.principal.token_id for token in read_tokens(entry() + entry(id='"b"') + entry(id='"c"'))] == [*"abc"]


@pytest.mark.parametrize(
    "data",
    [
        entry(id=None),
        entry(tenant=None),
        entry(scopes=None),
        entry(sha256=None),
        entry(tenant='""'),
        entry(tenant=f'"{"x" * 65}"'),
        entry(tenant=f'"{"ä" * 33}"'),
        entry(tenant='"a\\n"'),
        entry(scopes="[]"),
        entry(scopes='["root"]'),
        entry(scopes='"read"'),
        entry(sha256=f'"{HASH[:-1]}"'),
        entry(sha256=f'"{HASH}a"'),
        entry(sha256=f'"{HASH.upper()}"'),
        entry(expires="2027-01-02"),
        entry(expires="2027-01-02T03:04:05"),
        entry(expires='"soon"'),
        entry(token=f'"{HASH}"'),
        entry(**{HASH: '"x"'}),
        entry() + entry(),
        b"token = 1",
        b'[other]\nx = "' + HASH.encode() + b'"',
        b"[[token]\n" + HASH.encode(),
        HASH.encode(),
        b"\xff" + HASH.encode(),
        b"#" * (MAX_FILE_BYTES + 1),
    ],
)
def test_a_file_that_is_wrong_anywhere_is_refused_whole_and_not_quoted(data: bytes) -> None:
    good = entry(id='"good"')
    with pytest.raises(TokenFileError) as caught:
        read_tokens(data + b"\n" + good if data.startswith(b"[[token]]") else data)
    assert HASH[:8] not in str(caught.value)
    assert HASH[:8].upper() not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (entry() + entry(id='"b"') + entry(), "token 3 (a) has the id of an earlier one; each takes its own"),
        (entry() + entry(id='"b"', scopes="[]"), "token 2 (b).scopes: "),
        (entry(id='"b"', tenant='"a\\n"'), "token 1 (b): a tenant is"),
        (entry(id=f'"{HASH}"', scopes="[]"), "token 1.scopes: "),
        (entry(id=f'"{HASH}"') + entry(id=f'"{HASH}"'), "token 2 has the id of an earlier one"),
        (b"token = [1]", "token 1: "),
    ],
)
def test_a_wrong_entry_is_named_by_its_place_and_by_an_id_that_is_no_hash(data: bytes, says: str) -> None:
    with pytest.raises(TokenFileError) as caught:
        read_tokens(data)
    assert str(caught.value).startswith(says)


def test_the_largest_file_is_read() -> None:
    assert len(read_tokens(entry().ljust(MAX_FILE_BYTES, b"\n"))) == 1
