"""Documents outlive the process, whole or not at all."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from storage.catalog import Catalog, CatalogError, CorruptDocumentError

DOCUMENT: dict[str, Any] = {"text": "ä \u2028", "number": 7, "nothing": None, "list": [1, {"a": []}]}


def open_catalog(directory: Path, **limits: int) -> Catalog:
    return Catalog(directory, **({"max_documents": 4, "max_document_bytes": 2000} | limits))


def test_an_empty_directory_is_an_empty_catalog(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path / "new" / "catalog")
    assert catalog.names() == []
    with pytest.raises(CatalogError, match=r"absent\.json"):
        catalog.read("absent")


def test_documents_survive_reopening(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("b", DOCUMENT)
    catalog.write("a", {})
    again = open_catalog(tmp_path)
    assert again.names() == ["a", "b"]
    assert again.read("b") == DOCUMENT
    assert again.read("a") == {}


def test_a_write_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", {"n": 1})
    catalog.write("a", {"n": 2})
    assert catalog.read("a") == {"n": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_deleting(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", {})
    assert catalog.delete("a")
    assert not catalog.delete("a")
    assert catalog.names() == open_catalog(tmp_path).names() == []


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", "ä", "a\n", "x" * 129, "a\0"])
def test_names_that_could_leave_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    catalog = open_catalog(tmp_path / "catalog")
    for action in (lambda: catalog.write(name, {}), lambda: catalog.read(name), lambda: catalog.delete(name)):
        with pytest.raises(CatalogError, match="no name"):
            action()
    assert [path.name for path in tmp_path.rglob("*")] == ["catalog"]


@pytest.mark.parametrize("name", [".", "..", "-", "a.json", "a.tmp", "a.json.tmp", "x" * 128])
def test_odd_names_are_kept_apart(tmp_path: Path, name: str) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", {"n": 1})
    catalog.write(name, {"n": 2})
    again = open_catalog(tmp_path)
    assert again.names() == sorted(["a", name])
    assert (again.read("a"), again.read(name)) == ({"n": 1}, {"n": 2})


def test_one_document_too_many_is_refused_but_a_replacement_is_not(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path, max_documents=2)
    catalog.write("a", {})
    catalog.write("b", {})
    with pytest.raises(CatalogError, match="2 documents"):
        catalog.write("c", {})
    catalog.write("b", {"n": 1})
    assert open_catalog(tmp_path, max_documents=1).names() == ["a", "b"]


def test_a_document_that_is_too_large_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", {"n": 1})
    with pytest.raises(CatalogError, match="above the 2000 allowed"):
        catalog.write("a", {"n": "x" * 2000})
    assert catalog.read("a") == {"n": 1}


def test_leftovers_of_a_crash_are_removed_and_other_files_are_not(tmp_path: Path) -> None:
    open_catalog(tmp_path).write("a", {"n": 1})
    (tmp_path / "a.tmp").write_text("half a docu")
    (tmp_path / "b.tmp").write_text("")
    (tmp_path / "README").write_text("")
    catalog = open_catalog(tmp_path)
    assert catalog.names() == ["a"]
    assert catalog.read("a") == {"n": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README", "a.json"]


def test_every_changed_byte_that_is_no_white_space_is_found_and_the_file_named(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", {"key": "value", "n": 123})
    path = tmp_path / "a.json"
    good = path.read_bytes()
    for position in [place for place, byte in enumerate(good) if not chr(byte).isspace()]:
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(CorruptDocumentError, match=r"a\.json") as caught:
            catalog.read("a")
        assert caught.value.path == path


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"document": 1}',
        b"[" * 1999,
        b" " * 2001,
        json.dumps({"format": 2, "document": {}, "checksum": ""}).encode(),
    ],
)
def test_files_that_are_no_document_are_corrupt(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(CorruptDocumentError, match=r"a\.json is corrupt"):
        open_catalog(tmp_path).read("a")


def test_every_truncation_is_found(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", DOCUMENT)
    path = tmp_path / "a.json"
    good = path.read_bytes().rstrip()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(CorruptDocumentError):
            catalog.read("a")


def test_a_write_that_fails_says_so_and_keeps_the_old_document(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.write("a", {"n": 1})
    (tmp_path / "a.tmp").mkdir()
    with pytest.raises(CatalogError, match=r"a\.json cannot be written"):
        catalog.write("a", {"n": 2})
    assert catalog.read("a") == {"n": 1}


def test_writers_of_one_name_leave_one_whole_document(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)

    def write_five_times(number: int) -> None:
        for _ in range(5):
            catalog.write("a", {"n": [number] * 50})

    writers = [threading.Thread(target=write_five_times, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(set(catalog.read("a")["n"])) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
