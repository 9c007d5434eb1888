"""Erasing from a real service: bytes that are in no file and no Redis any more, jobs that go on, namespaces that go."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process.conftest import Serve
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually, kvshelf

PROFILE = "deepseek-v4.1-flash/fp4"
BODY = {"model": "m", "profile": PROFILE, "bytes_per_token": 40, "weights_revision": "r1"}
KINDS = ("block", "snapshot")


class Shelf:
    """A service with records whose bytes follow from namespace, class and number."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.sizes: dict[str, int] = {}

    def register(self, name: str, **fields: str) -> None:
        answer = self.served.http.put(f"/v1/namespaces/{name}", json={**BODY, "salt": name, **fields})
        assert answer.status_code == 201, answer.text
        self.sizes = {kind: int(answer.json()[f"{kind}_bytes"]) for kind in KINDS}

    def payload(self, name: str, kind: str, number: int) -> bytes:
        return hashlib.shake_128(f"{name} {kind} {number}".encode()).digest(self.sizes[kind])

    def url(self, name: str, kind: str, number: int) -> str:
        return f"/v1/namespaces/{name}/records/{kind}/{key_of(number)}"

    def fill(self, name: str, count: int) -> None:
        headers = {"content-type": "application/octet-stream"}
        for number in range(count):
            for kind in KINDS:
                answer = self.served.http.put(
                    self.url(name, kind, number) + "?end_tokens=128",
                    content=self.payload(name, kind, number),
                    headers=headers,
                )
                assert answer.status_code == 201, answer.text

    def there(self, name: str, count: int) -> list[int]:
        """The numbers of which block and snapshot are there."""
        statuses = [
            {self.served.http.head(self.url(name, kind, number)).status_code for kind in KINDS}
            for number in range(count)
        ]
        return [number for number, status in enumerate(statuses) if status == {200}]

    def is_in_files(self, name: str, number: int) -> bool:
        piece = self.payload(name, "block", number)[100:164]
        return any(piece in path.read_bytes() for path in self.served.data_dir.rglob("*") if path.is_file())

    def erase(self, **asked: Any) -> dict[str, Any]:
        answer = self.served.http.post("/v1/erasures", json=asked)
        assert answer.status_code == 202, answer.text
        return self.wait(answer.json()["erasure_id"])

    def wait(self, erasure_id: str) -> dict[str, Any]:
        def done() -> dict[str, Any] | None:
            job: dict[str, Any] = self.served.http.get(f"/v1/erasures/{erasure_id}").json()
            return job if job["state"] == "done" else None

        job = eventually(done, 30)
        assert job is not None
        return job


def key_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


@pytest.fixture
def shelf(serve: Serve, redis: RedisServer) -> Shelf:
    made = Shelf(serve("--redis-url", redis.url))
    for name in ("one", "two"):
        made.register(name)
        made.fill(name, 5)
    return made


def test_a_namespace_goes_from_disk_and_pool_and_nothing_else_does(shelf: Shelf) -> None:
    counted = shelf.erase(namespace="one", dry_run=True)
    assert counted["records"] == {"block": 5, "snapshot": 5}
    assert shelf.there("one", 5) == list(range(5)), "a dry run erases nothing"
    receipt = shelf.erase(namespace="one")
    assert receipt["records"] == {"block": 5, "snapshot": 5}
    assert receipt["payload_bytes"] == {kind: 5 * shelf.sizes[kind] for kind in KINDS}
    assert (receipt["unwiped_segments"], bool(receipt["not_guaranteed"])) == (0, True)
    assert shelf.there("one", 5) == []
    assert shelf.there("two", 5) == list(range(5))
    assert [shelf.is_in_files("one", number) for number in range(5)] == [False] * 5
    assert shelf.is_in_files("two", 3)
    names = [one["name"] for one in shelf.served.http.get("/v1/namespaces").json()["namespaces"]]
    assert names == ["one", "two"], "the namespace stays unless it is to be forgotten"
    shelf.fill("one", 2)
    assert shelf.served.stop() == 0
    shelf.served.start()
    assert (shelf.there("one", 5), shelf.there("two", 5)) == ([0, 1], list(range(5)))
    again = shelf.served.http.get("/v1/erasures").json()["erasures"]
    assert [job["state"] for job in again] == ["done", "done"], "receipts survive"


def test_records_prefixes_classes_and_times(shelf: Shelf) -> None:
    assert shelf.erase(namespace="one", keys=[key_of(1), key_of(9)])["records"] == {"block": 1, "snapshot": 1}
    assert shelf.there("one", 5) == [0, 2, 3, 4]
    assert shelf.erase(namespace="one", key_prefix=key_of(3)[:6])["records"] == {"block": 1, "snapshot": 1}
    assert shelf.there("one", 5) == [0, 2, 4]
    assert shelf.erase(namespace="one", record_class="snapshot")["records"] == {"block": 0, "snapshot": 3}
    assert shelf.erase(stored_before=1.0)["records"] == {"block": 0, "snapshot": 0}
    assert shelf.there("two", 5) == list(range(5))
    assert shelf.erase(stored_from=1.0, weights_revision="r1")["records"] == {"block": 8, "snapshot": 5}
    assert shelf.there("two", 5) == []


def test_a_forgotten_namespace_is_gone_with_its_leases(shelf: Shelf) -> None:
    plan = shelf.served.http.post(
        "/v1/namespaces/one/plan", json={"prompt_tokens": 700, "hashes": [key_of(number) for number in range(5)]}
    ).json()
    lease = plan["lease"]["lease_id"]
    receipt = shelf.erase(namespace="one", forget_namespaces=True)
    assert receipt["leases_ended"] == 1
    assert shelf.served.http.get(f"/v1/leases/{lease}/fetch").status_code == 404
    assert shelf.served.http.get("/v1/namespaces/one").status_code == 404
    shelf.served.kill()
    shelf.served.start()
    assert shelf.served.http.get("/v1/namespaces/one").status_code == 404
    shelf.register("one")
    assert shelf.there("one", 5) == []


def test_what_a_lease_holds_is_unreadable_at_once(shelf: Shelf) -> None:
    plan = shelf.served.http.post(
        "/v1/namespaces/one/plan", json={"prompt_tokens": 700, "hashes": [key_of(number) for number in range(5)]}
    ).json()
    assert plan["plan"]["saved_tokens"] > 0
    shelf.served.http.post("/v1/erasures", json={"namespace": "one", "keys": [key_of(number) for number in range(5)]})
    eventually(lambda: shelf.there("one", 5) == [], 10)
    data = shelf.served.http.get(f"/v1/leases/{plan['lease']['lease_id']}/fetch").content
    assert not [number for number in range(5) if shelf.payload("one", "block", number)[:64] in data]
    assert shelf.served.http.get("/healthz").json()["status"] == "ok", "to erase is no fault"


def test_a_killed_service_goes_on_with_its_erasures(shelf: Shelf, redis: RedisServer) -> None:
    redis.stop()
    taken = shelf.served.http.post("/v1/erasures", json={"namespace": "one"}).json()
    eventually(lambda: shelf.served.http.get(f"/v1/erasures/{taken['erasure_id']}").json()["state"] == "waiting", 20)
    shelf.served.kill()
    redis.start()
    shelf.served.start()
    receipt = shelf.wait(taken["erasure_id"])
    assert receipt["records"]["block"] in (0, 5), "counted by whoever erased them; before or after the kill"
    assert shelf.there("one", 5) == []
    assert not shelf.is_in_files("one", 2)


def test_the_command_waits_for_the_receipt(shelf: Shelf) -> None:
    url = shelf.served.url
    ended = kvshelf("erase", "--url", url, "--namespace", "one", "--dry-run")
    assert (ended.returncode, "5 blocks" in ended.stdout, "would be erased" in ended.stdout) == (0, True, True)
    ended = kvshelf("erase", "--url", url, "--namespace", "one", "--forget", "--json")
    receipt = json.loads(ended.stdout)
    assert (receipt["state"], receipt["records"]) == ("done", {"block": 5, "snapshot": 5})
    ended = kvshelf("erase", "--url", url, "--job", receipt["erasure_id"])
    assert ("not reached:" in ended.stdout, ended.returncode) == (True, 0)
    for arguments in ([], ["--namespace", "one"], ["--job", "unknown"], ["--namespace", "two", "--key", "ab"]):
        ended = kvshelf("erase", "--url", url, *arguments)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    for arguments in (["--tenant", "defualt"], ["--tenant", "default", "--model", "n", "--dry-run"]):
        ended = kvshelf("erase", "--url", url, *arguments)
        assert (ended.returncode, "namespaces: none" in ended.stdout) == (2, True)
        assert f"no namespace matches {' '.join(arguments[:4])} (" in ended.stderr
    ended = kvshelf("erase", "--url", "http://127.0.0.1:1", "--namespace", "one")
    assert (ended.returncode, "is the service running there?" in ended.stderr) == (1, True)


def test_a_forgotten_namespace_leaves_no_document(shelf: Shelf) -> None:
    documents = Path(shelf.served.data_dir / "namespaces")
    assert len(list(documents.iterdir())) == 2
    shelf.erase(tenant="default", forget_namespaces=True)
    assert list(documents.iterdir()) == []


def test_a_replay_leaves_nothing_behind_unless_it_is_to(serve: Serve) -> None:
    served = serve()

    def names() -> list[str]:
        return [one["name"] for one in served.http.get("/v1/namespaces").json()["namespaces"]]

    for options, left in (([], 0), (["--keep"], 1), (["--namespace", "mine"], 2)):
        ended = kvshelf("replay", "sample", "--requests", "5", "--url", served.url, *options)
        assert (ended.returncode, "stays" in ended.stderr) == (0, False), ended.stderr
        eventually(lambda left=left: len(names()) == left, 10)  # type: ignore[misc]
    assert served.http.get("/v1/stats").json()["tiers"]["ssd"]["records"] > 0
    ended = kvshelf("erase", "--url", served.url, "--revision", "replay", "--forget")
    assert ended.returncode == 0, ended.stderr
    assert (names(), served.http.get("/v1/stats").json()["tiers"]["ssd"]["records"]) == ([], 0)
