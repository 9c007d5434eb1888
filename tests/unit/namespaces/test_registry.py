"""The registry keeps what it acknowledged and refuses what it cannot keep apart."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.access import ANYBODY, OPERATOR, Principal, Scope, ScopeError
from service.namespaces import (
    Difference,
    Namespace,
    NamespaceConflictError,
    NamespaceError,
    NamespaceLimitError,
    NamespaceRegistry,
    UnknownNamespaceError,
)
from service.profiles import get_profile, profile_from_document
from storage.catalog import Catalog, CatalogError, CorruptDocumentError
from tests.support.namespaces import spec


def open_registry(
    directory: Path, *, max_namespaces: int = 100, max_block_bytes: int = 1 << 24, max_snapshot_bytes: int = 1 << 24
) -> NamespaceRegistry:
    return NamespaceRegistry(
        Catalog(directory, max_documents=100),
        max_namespaces=max_namespaces,
        max_block_bytes=lambda _: max_block_bytes,
        max_snapshot_bytes=max_snapshot_bytes,
    )


def document_of(directory: Path) -> Path:
    """The one file of a catalog."""
    (path,) = directory.glob("*.json")
    return path


def test_nothing_is_registered_at_first(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    assert registry.list(ANYBODY) == []
    with pytest.raises(UnknownNamespaceError, match=r"'a'.*register") as caught:
        registry.get(ANYBODY, "a")
    assert caught.value.name == "a"


def test_registering_again_is_the_same_namespace(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    made, created = registry.register(ANYBODY, "a", spec())
    again, created_again = registry.register(ANYBODY, "a", spec())
    assert (created, created_again) == (True, False)
    assert made is again is registry.get(ANYBODY, "a")


def test_namespaces_survive_a_restart(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    own = profile_from_document(
        {
            "id": "own",
            "window_rows": [{"layers": 2, "window_tokens": 4, "row": [{"dtype": "u8", "shape": [3]}]}],
            "note": "ä",
        }
    )
    registry.register(ANYBODY, "b", spec(shards=2, salt="s"))
    registry.register(ANYBODY, "a", spec(profile=own, hash_scheme="vllm", hash_block_tokens=16))
    again = open_registry(tmp_path)
    assert again.list(ANYBODY) == registry.list(ANYBODY)
    assert [namespace.name for namespace in again.list(ANYBODY)] == ["a", "b"]
    assert again.register(ANYBODY, "a", registry.get(ANYBODY, "a").spec) == (registry.get(ANYBODY, "a"), False)


@pytest.mark.parametrize(
    ("fields", "differences"),
    [
        ({"salt": "x"}, [("salt", "", "x")]),
        ({"hash_scheme": "vllm"}, [("hash_scheme", "kvshelf-sha256", "vllm"), ("hash_block_tokens", None, 128)]),
        (
            {"profile": get_profile("deepseek-v4.1-flash/fp8"), "shards": 2},
            [("shards", 1, 2), ("profile", "deepseek-v4.1-flash/fp4", "deepseek-v4.1-flash/fp8")],
        ),
        (
            {"profile": replace(get_profile("deepseek-v4.1-flash/fp4"), decoder_window_tokens=0)},
            [("profile.decoder_window_tokens", 128, 0)],
        ),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_something_else_under_the_same_name_is_a_conflict_that_names_the_difference(
    tmp_path: Path, fields: dict[str, Any], differences: list[tuple[object, ...]], restarted: bool
) -> None:
    registry = open_registry(tmp_path)
    registry.register(ANYBODY, "a", spec())
    if restarted:
        registry = open_registry(tmp_path)
    with pytest.raises(NamespaceConflictError) as caught:
        registry.register(ANYBODY, "a", spec(**fields))
    assert list(caught.value.differences) == differences
    assert all(isinstance(difference, Difference) for difference in caught.value.differences)
    assert str(differences[0][0]) in str(caught.value)
    assert registry.get(ANYBODY, "a").spec == spec()


def test_a_profile_that_reads_otherwise_and_is_the_same_is_no_conflict(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.register(ANYBODY, "a", spec())
    renamed = replace(get_profile("deepseek-v4.1-flash/fp4"), note="another note", model="another name")
    _, created = registry.register(ANYBODY, "a", spec(profile=renamed))
    assert not created


def test_two_names_may_stand_for_the_same_bytes(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    first, _ = registry.register(ANYBODY, "a", spec())
    second, created = registry.register(ANYBODY, "b", spec())
    assert created
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 129, "a\n", ".", ".."])
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NamespaceError, match="name") as caught:
        open_registry(tmp_path).register(ANYBODY, name, spec())
    assert caught.value.field == "name"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "x" * 128, "A-1_2.json", ".hidden", "a.tmp"])
def test_good_names_survive(tmp_path: Path, name: str) -> None:
    open_registry(tmp_path).register(ANYBODY, name, spec())
    assert open_registry(tmp_path).get(ANYBODY, name).name == name


def test_the_number_of_namespaces_is_bounded(tmp_path: Path) -> None:
    registry = open_registry(tmp_path, max_namespaces=2)
    registry.register(ANYBODY, "a", spec())
    registry.register(ANYBODY, "b", spec(salt="b"))
    with pytest.raises(NamespaceLimitError, match="max_namespaces"):
        registry.register(ANYBODY, "c", spec(salt="c"))
    assert not registry.register(ANYBODY, "a", spec())[1]
    assert len(open_registry(tmp_path, max_namespaces=1).list(ANYBODY)) == 2


@pytest.mark.parametrize(
    ("max_block_bytes", "max_snapshot_bytes", "shards", "field"),
    [
        (113_920, 1_351_680, 1, None),
        (113_919, 1_351_680, 1, "block_tokens"),
        (113_920, 1_351_679, 1, "profile"),
        (7_120, 84_480, 16, None),
        (7_119, 84_480, 16, "block_tokens"),
        (7_120, 84_479, 16, "profile"),
    ],
)
def test_records_that_no_tier_keeps_are_refused(
    tmp_path: Path, max_block_bytes: int, max_snapshot_bytes: int, shards: int, field: str | None
) -> None:
    registry = open_registry(tmp_path, max_block_bytes=max_block_bytes, max_snapshot_bytes=max_snapshot_bytes)
    if field is None:
        assert registry.register(ANYBODY, "a", spec(shards=shards))[1]
        return
    with pytest.raises(NamespaceError, match=r"max_snapshot_bytes = |larger than a segment takes") as caught:
        registry.register(ANYBODY, "a", spec(shards=shards))
    assert caught.value.field == field
    assert registry.list(ANYBODY) == []


def test_a_kept_namespace_over_a_lowered_setting_stops_the_start(tmp_path: Path) -> None:
    open_registry(tmp_path).register(ANYBODY, "a", spec())
    with pytest.raises(CatalogError, match=r"a\.\w+\.json.*max_snapshot_bytes = 1000"):
        open_registry(tmp_path, max_snapshot_bytes=1000)


def test_a_corrupt_file_stops_the_start_and_is_named(tmp_path: Path) -> None:
    open_registry(tmp_path).register(ANYBODY, "a", spec())
    document_of(tmp_path).write_text("{")
    with pytest.raises(CorruptDocumentError, match=r"a\.\w+\.json is corrupt"):
        open_registry(tmp_path)


@pytest.mark.parametrize("change", ["spec", "fingerprint", "nothing"])
def test_a_whole_document_that_is_no_namespace_stops_the_start(tmp_path: Path, change: str) -> None:
    open_registry(tmp_path).register(ANYBODY, "a", spec())
    catalog = Catalog(tmp_path, max_documents=1)
    document = json.loads(document_of(tmp_path).read_text())["document"]
    changed = {
        "spec": document | {"spec": document["spec"] | {"salt": "other"}},
        "fingerprint": document | {"fingerprint": "00" * 32},
        "nothing": {},
    }
    catalog.write(document_of(tmp_path).stem, changed[change])
    with pytest.raises(CorruptDocumentError, match=r"a\.\w+\.json"):
        open_registry(tmp_path)


def test_a_registration_that_cannot_be_kept_does_not_exist(tmp_path: Path) -> None:
    open_registry(tmp_path / "one").register(ANYBODY, "a", spec())
    registry = open_registry(tmp_path)
    (tmp_path / document_of(tmp_path / "one").with_suffix(".tmp").name).mkdir()
    with pytest.raises(CatalogError):
        registry.register(ANYBODY, "a", spec())
    assert registry.list(ANYBODY) == []


def test_of_racing_registrations_one_wins_and_all_others_see_it(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    made: list[tuple[Namespace, bool]] = []
    lost: list[NamespaceConflictError] = []
    gate = threading.Barrier(8)

    def register(salt: str) -> None:
        gate.wait()
        try:
            made.append(registry.register(ANYBODY, "a", spec(salt=salt)))
        except NamespaceConflictError as error:
            lost.append(error)

    threads = [threading.Thread(target=register, args=(salt,)) for salt in "xxxxyyyy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(created for _, created in made) == 1
    assert {namespace.spec.salt for namespace, _ in made} == {registry.get(ANYBODY, "a").spec.salt}
    assert (len(made), len(lost)) == (4, 4)


def tenant(name: str) -> Principal:
    return Principal(name, frozenset(Scope))


def test_tenants_name_their_namespaces_alike_and_apart(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    mine, created = registry.register(tenant("mine"), "a", spec(tenant="mine"))
    other, created_too = registry.register(tenant("other"), "a", spec(tenant="other", shards=2))
    assert created
    assert created_too
    for again in (registry, open_registry(tmp_path)):
        assert again.get(tenant("mine"), "a") == mine
        assert again.get(tenant("other"), "a") == other
        assert again.list(tenant("mine")) == [mine]
        assert again.list(tenant("third")) == []
        assert again.list(tenant(OPERATOR)) == [mine, other]
        for nobody in (tenant("third"), tenant(OPERATOR)):
            with pytest.raises(UnknownNamespaceError):
                again.get(nobody, "a")
        with pytest.raises(CatalogError, match=r"both have a namespace 'a'.* access\.token_file"):
            again.check_names()


def test_names_of_different_tenants_do_without_tokens_while_they_differ(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    first, _ = registry.register(tenant("mine"), "a", spec(tenant="mine"))
    second, _ = registry.register(tenant("other"), "b", spec(tenant="other"))
    registry.check_names()
    assert [registry.get(ANYBODY, name) for name in "ab"] == [first, second]
    with pytest.raises(NamespaceConflictError, match="tenant"):
        registry.register(ANYBODY, "a", spec(tenant="other"))


def test_nobody_registers_for_another_tenant(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    for principal, of in ((tenant("mine"), "other"), (tenant(OPERATOR), "mine"), (tenant(OPERATOR), OPERATOR)):
        with pytest.raises(ScopeError):
            registry.register(principal, "a", spec(tenant=of))
    with pytest.raises(ScopeError):
        registry.register(ANYBODY, "a", spec(tenant=OPERATOR))
    assert list(tmp_path.iterdir()) == []


def test_the_bound_on_namespaces_is_each_tenants_own(tmp_path: Path) -> None:
    registry = open_registry(tmp_path, max_namespaces=1)
    registry.register(tenant("mine"), "a", spec(tenant="mine"))
    registry.register(tenant("other"), "a", spec(tenant="other"))
    with pytest.raises(NamespaceLimitError):
        registry.register(tenant("other"), "b", spec(tenant="other"))


def test_a_document_from_before_namespaces_were_named_per_tenant_is_read(tmp_path: Path) -> None:
    made, _ = open_registry(tmp_path / "new").register(ANYBODY, "a", spec())
    document = json.loads(document_of(tmp_path / "new").read_text())["document"]
    del document["name"]
    Catalog(tmp_path / "old", max_documents=1).write("a", document)
    assert open_registry(tmp_path / "old").get(tenant("tenant"), "a") == made
