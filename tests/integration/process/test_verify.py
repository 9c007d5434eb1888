"""``kvshelf verify`` and ``kvshelf scrub`` on a real service's data: what they find, and that they change nothing."""

import hashlib
import json
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from storage.ssd.format import ID_BYTES, PAGE_BYTES
from storage.ssd.rows import SLOT_BYTES
from tests.integration.process.conftest import Serve
from tests.support.disks import MIB, memory_disk
from tests.support.served import Served, kvshelf

BODY = {"model": "m", "profile": "llama-3-8b/bf16", "bytes_per_token": 100}
BLOCK_BYTES = 12_800
RECORDS = 20


def fill(served: Served) -> None:
    assert served.http.put("/v1/namespaces/n", json=BODY).status_code == 201
    for number in range(RECORDS):
        url = f"/v1/namespaces/n/records/block/{key_of(number)}?end_tokens=128"
        content = hashlib.shake_128(b"%d" % number).digest(BLOCK_BYTES)
        answer = served.http.put(url, content=content, headers={"content-type": "application/octet-stream"})
        assert answer.status_code == 201


def key_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def tree(directory: Path) -> dict[str, tuple[int, str]]:
    """Every file's time of change and digest."""
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in directory.rglob("*")
        if path.is_file()
    }


def flip(path: Path, offset: int, count: int = 64) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        data = file.read(count)
        file.seek(offset)
        file.write(bytes(byte ^ 0xFF for byte in data))


def verify(directory: Path, *options: str) -> tuple[int, dict[str, Any]]:
    before = tree(directory)
    ended = kvshelf("verify", str(directory), "--json", *options)
    assert tree(directory) == before, "nothing is changed"
    return ended.returncode, json.loads(ended.stdout)


@pytest.fixture
def stopped(serve: Serve) -> Served:
    served = serve()
    fill(served)
    assert served.stop() == 0
    return served


def test_a_sound_directory_is_sound(stopped: Served) -> None:
    status, report = verify(stopped.data_dir)
    assert (status, report["sound"], report["counts"], report["findings"]) == (0, True, {}, [])
    assert (report["records"], report["payload_bytes"]) == (RECORDS, RECORDS * BLOCK_BYTES)
    ended = kvshelf("verify", str(stopped.data_dir))
    assert (ended.stdout.splitlines()[-1], ended.returncode, ended.stderr) == ("all is sound", 0, "")


def test_every_kind_of_damage_is_found_and_left_as_it_is(stopped: Served) -> None:
    segment = stopped.data_dir / "segments" / "000001.seg"
    flip(segment, 4 * PAGE_BYTES + 5000)
    flip(segment, 8 * PAGE_BYTES, 8)
    status, report = verify(stopped.data_dir)
    assert (status, report["counts"]) == (1, {"record": 2})
    assert all("its bytes are not those that were written" in finding for finding in report["findings"])
    assert verify(stopped.data_dir, "--no-payloads")[0] == 0, "which are not read then"
    index = stopped.data_dir / "index" / "data.mdb"
    node = struct.pack("<HHHH", SLOT_BYTES, 0, 0, ID_BYTES) + segment.read_bytes()[48 : 48 + ID_BYTES]
    for found in re.finditer(re.escape(node), index.read_bytes()):  # every version of the first record's entry
        flip(index, found.start(), 4)
    (document,) = (stopped.data_dir / "namespaces").glob("*.json")
    flip(document, 30, 1)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - PAGE_BYTES)
    status, report = verify(stopped.data_dir)
    assert status == 1
    assert report["counts"].keys() == {"index", "row", "segment", "document"}
    assert report["counts"]["row"] == RECORDS, "the page had the entries of all of them, and places still tell which"
    ended = kvshelf("verify", str(stopped.data_dir))
    assert (ended.returncode, ended.stdout.splitlines()[-1].startswith("damaged: ")) == (1, True)


def test_it_works_where_nothing_can_be_written(stopped: Served, tmp_path: Path) -> None:
    with memory_disk(tmp_path, 64 * MIB) as mounted:
        subprocess.run(["cp", "-r", str(stopped.data_dir), str(mounted / "copy")], check=True)
        subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
        ended = kvshelf("verify", str(mounted / "copy"))
        assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "all is sound")


def test_what_cannot_be_verified_is_said_in_one_line(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    (tmp_path / "empty").mkdir()
    for directory, message in (
        (served.data_dir, f"is in use by process {served.server.process.pid}"),
        (tmp_path / "empty", "is no data directory"),
        (tmp_path / "none", "is no data directory"),
    ):
        ended = kvshelf("verify", str(directory))
        assert message in ended.stderr
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert served.http.get("/readyz").status_code == 204


def test_scrubbing_finds_damage_on_demand(serve: Serve) -> None:
    served = serve()
    fill(served)
    ended = kvshelf("scrub", served.url)
    assert (ended.returncode, ended.stdout) == (0, f"idle, 100%: {RECORDS} records, 256 KB, 0 damaged\n")
    flip(served.data_dir / "segments" / "000001.seg", 4 * PAGE_BYTES + 5000)
    ended = kvshelf("scrub", served.url, "--json")
    found = json.loads(ended.stdout)
    assert (ended.returncode, found["state"], found["corrupt"]) == (1, "idle", 1)
    reasons = [
        served.http.head(f"/v1/namespaces/n/records/block/{key_of(number)}").headers.get("kvshelf-miss")
        for number in range(RECORDS)
    ]
    assert (reasons.count("corrupt"), reasons.count(None)) == (1, RECORDS - 1), "it is a miss before anybody reads it"
    metrics = served.http.get("/metrics").text
    assert "kvshelf_scrub_corrupt_records_total 1.0" in metrics
    assert "kvshelf_scrub_progress_ratio 1.0" in metrics
    assert kvshelf("scrub", served.url, "--status").returncode == 1
    assert kvshelf("scrub", "http://127.0.0.1:1").returncode == 1


def test_scrubbing_that_is_off_is_said(serve: Serve) -> None:
    served = serve(KVSHELF_SCRUB__BYTES_PER_SECOND="0")
    ended = kvshelf("scrub", served.url)
    assert (ended.returncode, "scrubbing is off" in ended.stderr) == (2, True)
