"""What an erasure is about: conditions that must all hold, and at least one."""

from pathlib import Path

import pytest

from kvshelf_client.words import RecordClass
from service.access import Principal, Scope
from service.access.base import ANYBODY
from service.erasure.job import ErasureJob, ErasureState, Target, job_from_kept
from service.erasure.scope import ErasureScope, ScopeFieldError, scope_from_document
from service.namespaces import UnknownNamespaceError
from storage.clock import ManualClock
from tests.support.service import make_parts, register

KEY = "ab" * 32


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "scope"),
        ({"namespace": "", "keys": ()}, "scope"),
        ({"keys": (KEY,)}, "keys"),
        ({"namespace": "a", "keys": (KEY[2:],)}, "keys"),
        ({"namespace": "a", "keys": ("x" * 64,)}, "keys"),
        ({"namespace": "a", "key_prefix": "abc"}, "keys"),
        ({"namespace": "a", "key_prefix": "ab" * 25}, "keys"),
    ],
)
def test_what_is_no_scope_is_refused(fields: dict[str, object], field: str) -> None:
    with pytest.raises(ScopeFieldError) as caught:
        ErasureScope(**fields)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "is_whole"),
    [
        ({"namespace": "a"}, True),
        ({"tenant": "a", "weights_revision": "1"}, True),
        ({"namespace": "a", "record_class": "block"}, False),
        ({"namespace": "a", "keys": (KEY,)}, False),
        ({"key_prefix": "ab"}, False),
        ({"stored_before": 5.0}, False),
        ({"stored_from": 0.0}, False),
        ({"stored_from": 5.0, "stored_before": 5.0}, False),
    ],
)
def test_a_scope_is_kept_and_knows_whether_it_is_whole(fields: dict[str, object], is_whole: bool) -> None:
    scope = ErasureScope(**fields)  # type: ignore[arg-type]
    assert scope.is_whole is is_whole
    assert scope_from_document(scope.document()) == scope


def test_times_are_half_open() -> None:
    scope = ErasureScope(stored_from=10, stored_before=20)
    assert [scope.covers(at) for at in (9.9, 10, 19.9, 20)] == [False, True, True, False]


def test_a_tenant_s_scope_is_among_its_own(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, ManualClock())
    register(parts, "one")
    register(parts, "two")
    mine = Principal("test", frozenset(Scope))
    foreign = Principal("other", frozenset(Scope))
    assert [one.name for one in ErasureScope(tenant="test").targets(parts.namespaces, ANYBODY)] == ["one", "two"]
    assert [one.name for one in ErasureScope(namespace="two").targets(parts.namespaces, mine)] == ["two"]
    assert ErasureScope(tenant="test").targets(parts.namespaces, foreign) == []
    assert ErasureScope(weights_revision="2").targets(parts.namespaces, mine) == []
    for principal, name in ((foreign, "two"), (mine, "three")):
        with pytest.raises(UnknownNamespaceError):
            ErasureScope(namespace=name).targets(parts.namespaces, principal)
    parts.close()


def test_a_job_is_kept_whole() -> None:
    job = ErasureJob(
        "id", "acme", ErasureScope(namespace="a", keys=(KEY,)), [Target("a", "acme", "00" * 8, 2)], 5.0, forgets=True
    )
    job.state, job.records["block"], job.unwiped_segments = ErasureState.WAITING, 7, 3
    assert job_from_kept(job.kept()) == job
    assert ErasureScope(record_class="block").kinds == (RecordClass.BLOCK,)
