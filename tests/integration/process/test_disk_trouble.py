"""A real service on a real file system in trouble: full, read-only, unreadable, damaged while nobody looked."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.disks import MIB, LoopDisk, memory_disk, resize
from tests.support.served import Served, eventually, kvshelf

BLOCK_TOKENS, BYTES_PER_TOKEN = 128, 800
BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
RECORD_BYTES = 104 << 10
"""What a block takes in a segment: with its header, up to whole pages."""

NAMESPACE = {
    "model": "m",
    "profile": "llama-3-8b/bf16",
    "bytes_per_token": BYTES_PER_TOKEN,
    "block_tokens": BLOCK_TOKENS,
}


class Store:
    """A service with its data on a given file system, and blocks by number."""

    def __init__(self, served: Served, mounted: Path) -> None:
        self.served = served
        served.data_dir = mounted / "data"

    def start(self) -> None:
        self.served.start()
        assert self.served.http.put("/v1/namespaces/disk", json=NAMESPACE).status_code in (200, 201)

    @staticmethod
    def key(number: int) -> str:
        return hashlib.sha256(b"block %d" % number).hexdigest()

    @staticmethod
    def payload(number: int) -> bytes:
        return hashlib.shake_128(b"payload %d" % number).digest(BLOCK_BYTES)

    def put(self, number: int) -> httpx.Response:
        url = f"/v1/namespaces/disk/records/block/{self.key(number)}?end_tokens={BLOCK_TOKENS}"
        headers = {"content-type": "application/octet-stream"}
        return self.served.http.put(url, content=self.payload(number), headers=headers)

    def get(self, number: int) -> str:
        """``ok``, or why it is not there."""
        answer = self.served.http.get(f"/v1/namespaces/disk/records/block/{self.key(number)}")
        if answer.status_code == 200:
            assert answer.content == self.payload(number)
            return "ok"
        return str(answer.json()["reason"])

    def health(self) -> tuple[str, str]:
        answer = self.served.http.get("/healthz").json()
        return answer["status"], "; ".join(answer["causes"])

    def metric(self, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(self.served.http.get("/metrics").text)
        values = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(values)

    def events(self) -> list[str]:
        return [line["event"] for line in self.served.log() if line.get("tier") == "ssd"]


@pytest.fixture
def closing(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def make_store(closing: ExitStack, tmp_path: Path, mounted: Path, **settings: str) -> Store:
    served = Served(tmp_path, **settings)
    closing.callback(served.close)
    store = Store(served, mounted)
    store.start()
    return store


def test_a_full_file_system_is_a_smaller_cache_and_says_so(closing: ExitStack, tmp_path: Path) -> None:
    mounted = closing.enter_context(memory_disk(tmp_path, 24 * MIB))
    store = make_store(closing, tmp_path, mounted, KVSHELF_STORE__BUDGET_BYTES=str(64 * MIB))
    assert {store.put(number).status_code for number in range(300)} == {201}
    assert store.get(299) == "ok"
    assert store.get(0) == "evicted"
    status, cause = store.health()
    assert (status, "no room left" in cause) == ("degraded", True)
    assert store.events() == ["no_space"]
    resize(mounted, 256 * MIB)
    eventually(lambda: store.health() == ("ok", ""), 10)
    assert store.events() == ["no_space", "space_again"]


def test_a_full_file_system_refuses_with_507_where_nothing_may_be_evicted(closing: ExitStack, tmp_path: Path) -> None:
    mounted = closing.enter_context(memory_disk(tmp_path, 24 * MIB))
    settings = {"KVSHELF_STORE__BUDGET_BYTES": str(64 * MIB), "KVSHELF_STORE__WHEN_FULL": "refuse"}
    store = make_store(closing, tmp_path, mounted, **settings)
    statuses = [store.put(number).status_code for number in range(250)]
    stored = statuses.index(507)
    assert stored > 100
    assert set(statuses[:stored]) == {201}
    assert set(statuses[stored:]) <= {507, 201}
    assert {store.get(number) for number in range(stored)} == {"ok"}
    assert store.health()[0] == "degraded"
    assert store.metric("kvshelf_tier_faults_total", tier="ssd", kind="full") >= 1
    assert store.metric("kvshelf_stored_records_total", outcome="refused", reason="full") == statuses.count(507)
    assert store.served.stop() == 0
    store.start()
    assert {store.get(number) for number in range(stored)} == {"ok"}, "a restart on a full disk loses nothing"


def test_a_file_system_that_turns_read_only_serves_what_it_has(closing: ExitStack, tmp_path: Path) -> None:
    disk = LoopDisk(tmp_path, 64 * MIB)
    closing.callback(disk.close)
    store = make_store(closing, tmp_path, disk.mounted, KVSHELF_STORE__BUDGET_BYTES=str(32 * MIB))
    assert {store.put(number).status_code for number in range(20)} == {201}
    disk.turn_read_only()
    assert store.put(100).status_code == 503
    assert {store.get(number) for number in range(20)} == {"ok"}
    assert store.get(100) == "never_stored"
    status, cause = store.health()
    assert (status, "cannot be written (Read-only file system)" in cause) == ("degraded", True)
    assert store.metric("kvshelf_tier_faults_total", tier="ssd", kind="io") >= 1
    assert "write_failed" in store.events()
    refused = store.served.http.put("/v1/namespaces/another", json={**NAMESPACE, "salt": "x"})
    assert refused.status_code == 503
    assert store.served.stop() == 0
    ended = kvshelf("serve", "--port", "0", "--data-dir", str(store.served.data_dir))
    assert ended.stderr.endswith("Read-only file system\n")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)


def test_bytes_that_cannot_be_read_are_corrupt_misses_and_no_others(closing: ExitStack, tmp_path: Path) -> None:
    disk = LoopDisk(tmp_path, 64 * MIB)
    closing.callback(disk.close)
    settings = {"KVSHELF_STORE__BUDGET_BYTES": str(16 * MIB), "KVSHELF_STORE__MEMORY_BYTES": "0"}
    store = make_store(closing, tmp_path, disk.mounted, **settings)
    assert {store.put(number).status_code for number in range(6)} == {201}
    disk.lose_bytes_of(store.served.data_dir / "segments" / "000001.seg", 4 * RECORD_BYTES)
    found = [store.get(number) for number in range(6)]
    assert found[:3] == ["ok"] * 3
    assert found[4:] == ["corrupt"] * 2
    lost = found.count("corrupt")  # the device reads several pages at a time: the record before may be lost with them
    status, cause = store.health()
    assert (status, f"{lost} reads of" in cause) == ("degraded", True), cause
    assert store.metric("kvshelf_evictions_total", tier="ssd", cause="corrupt") == lost
    lines = [line for line in store.served.log() if line["event"] == "record_corrupt"]
    assert [line["why"] for line in lines] == ["Input/output error"] * lost


def test_damage_done_while_it_was_stopped_is_found_and_repaired(closing: ExitStack, tmp_path: Path) -> None:
    store = make_store(closing, tmp_path, tmp_path, KVSHELF_STORE__BUDGET_BYTES=str(32 * MIB))
    assert {store.put(number).status_code for number in range(60)} == {201}
    assert store.served.stop() == 0
    segments = sorted((store.served.data_dir / "segments").iterdir())
    segments[0].unlink()
    with segments[1].open("r+b") as file:
        file.truncate(3 * RECORD_BYTES + 100)
    with segments[2].open("r+b") as file:
        file.seek(RECORD_BYTES + 1000)
        file.write(bytes(64))
    index = store.served.data_dir / "index" / "data.mdb"
    pages = bytearray(index.read_bytes())
    at = pages.rfind(bytes.fromhex(store.key(59))[:20])
    pages[at - 24 : at + 40] = bytes(64)
    index.write_bytes(pages)
    store.start()
    found = [store.get(number) for number in range(60)]
    assert set(found) <= {"ok", "corrupt", "never_stored"}
    assert found.count("ok") >= 20
    assert found.count("corrupt") >= 8
    assert {"index_damaged", "segments_lost", "index_repaired"} <= set(store.events())
    assert store.metric("kvshelf_evictions_total", tier="ssd", cause="corrupt") >= 8
    assert {store.put(number).status_code for number in range(60)} <= {200, 201}
    assert {store.get(number) for number in range(60)} == {"ok"}


def test_a_directory_copied_from_another_machine_is_served(closing: ExitStack, tmp_path: Path) -> None:
    store = make_store(closing, tmp_path, tmp_path)
    assert store.put(1).status_code == 201
    store.served.kill()
    shutil.copytree(store.served.data_dir, tmp_path / "copy" / "data", ignore=shutil.ignore_patterns("*.sock"))
    store.served.data_dir = tmp_path / "copy" / "data"
    store.start()
    assert store.get(1) == "ok"
