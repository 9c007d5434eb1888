"""Access by a file: who is taken, and that the file may change, break and come back while the service runs."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.access import AccessDeniedError, GuardedAccess, Principal, Scope, ScopeError, TokenFileError
from service.access.tokens import describe_entry, make_token
from storage.clock import ManualClock

READ = frozenset({Scope.READ})


class Keys:
    """A file of tokens that a test rewrites."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "tokens.toml"
        self.clock = ManualClock()
        self.denials: list[str] = []

    def write(self, *tokens: str, tenant: str = "t", expires: datetime | None = None) -> None:
        """Let the file have these tokens and no others."""
        self.path.write_text("\n".join(describe_entry(token, tenant, READ, expires) for token in tokens))

    def access(self) -> GuardedAccess:
        """Access by the file."""
        return GuardedAccess(self.path, self.clock, denied=self.denials.append)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def refusal(access: GuardedAccess, token: str | None) -> str:
    with pytest.raises(AccessDeniedError) as caught:
        access.authenticate(token)
    return str(caught.value)


def test_a_token_of_the_file_is_its_tenants(keys: Keys) -> None:
    token = make_token("a", os.urandom)
    keys.write(token, tenant="mine")
    access = keys.access()
    assert access.is_guarded
    principal = access.authenticate(token)
    assert principal == Principal("mine", READ, "a")
    principal.require(Scope.READ)
    for scope in (Scope.WRITE, Scope.ADMIN):
        with pytest.raises(ScopeError, match=scope):
            principal.require(scope)
    with pytest.raises(ScopeError, match="operator"):
        principal.require_operator(Scope.READ)
    assert keys.denials == []


def test_whatever_else_is_denied_in_the_same_words(keys: Keys) -> None:
    token = make_token("a", os.urandom)
    keys.write(token)
    access = keys.access()
    others = ["", "a", token[:-1], token + "0", token.upper(), f" {token}", make_token("a", os.urandom),
              make_token("b", os.urandom), "kvs_a_", "_", "\ud800", "x" * 60_000]  # fmt: skip
    assert {refusal(access, other) for other in others} == {"this token is not taken"}
    assert "Authorization: Bearer" in refusal(access, None)
    assert keys.denials == ["unknown"] * len(others) + ["missing"]


def test_a_token_is_taken_until_it_expires_and_not_at_that_moment(keys: Keys) -> None:
    token = make_token("a", os.urandom)
    end = datetime.fromtimestamp(keys.clock.now() + 10, UTC).replace(microsecond=0)
    keys.write(token, expires=end)
    access = keys.access()
    keys.clock.advance(end.timestamp() - keys.clock.now() - 0.001)
    access.authenticate(token)
    keys.clock.advance(0.001)
    assert refusal(access, token) == "this token has expired"
    assert refusal(access, token[:-1]) == "this token is not taken"
    assert keys.denials == ["expired", "unknown"]


def test_an_empty_file_lets_nobody_in(keys: Keys) -> None:
    keys.write()
    access = keys.access()
    assert access.is_guarded
    refusal(access, "kvs_a_" + "0" * 64)


def test_a_changed_file_takes_effect_with_a_refresh(keys: Keys) -> None:
    old, new = make_token("old", os.urandom), make_token("new", os.urandom)
    keys.write(old)
    access = keys.access()
    keys.write(old, new)
    refusal(access, new)
    with capture_logs() as lines:
        for _ in range(3):
            access.refresh()
    assert [(line["event"], line["tokens"]) for line in lines] == [("tokens_reloaded", 2)]
    access.authenticate(old)
    access.authenticate(new)
    keys.write(new)
    access.refresh()
    refusal(access, old)
    access.authenticate(new)
    # The same token, another tenant: of the same length, within the same moment.
    keys.write(new, tenant="u")
    access.refresh()
    assert access.authenticate(new).tenant == "u"


@pytest.mark.parametrize("damage", ["broken", "gone", "open to all", "a directory"])
def test_a_file_that_cannot_be_used_leaves_the_tokens_in_force(keys: Keys, damage: str) -> None:
    token = make_token("a", os.urandom)
    keys.write(token)
    access = keys.access()
    kept = keys.path.read_bytes()
    keys.path.unlink()
    if damage == "broken":
        keys.path.write_bytes(kept[:-5])
    elif damage == "open to all":
        keys.path.write_bytes(b"")
        keys.path.chmod(0o602)
    elif damage == "a directory":
        keys.path.mkdir()
    with capture_logs() as lines:
        for _ in range(3):
            access.refresh()
    assert [(line["event"], line["log_level"], line["tokens_in_force"]) for line in lines] == [
        ("token_file_unusable", "error", 1)
    ]
    assert access.trouble() is not None
    assert str(keys.path) not in str(access.trouble())
    access.authenticate(token)
    with pytest.raises(TokenFileError, match=re.escape(str(keys.path))):
        keys.access()
    if damage == "a directory":
        keys.path.rmdir()
    keys.path.unlink(missing_ok=True)
    keys.path.write_bytes(kept)
    access.refresh()
    assert access.trouble() is None
    access.authenticate(token)
