"""Engines under load: they hold conversations through whatever happens to the service, and verify every byte."""

import struct
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import httpx

from kvshelf_client.frames import MEDIA_TYPE, FrameHeader, FrameKind
from kvshelf_client.hashing import block_keys
from kvshelf_client.words import Provenance, RecordClass
from storage.clock import SystemClock
from tests.load.soak.account import Account, Conversation
from tests.simulation.payloads import UNTAINTED, payload_of, truth_of
from tests.support.engine import BLOCK, frame, split

TURNS = 10
HANG_SECONDS = 10.0
"""No request may take so long, whatever is broken."""
PAUSE_SECONDS = 0.25
"""The time an engine computes, so that an hour of load fits a disk."""
_OCTETS = {"content-type": "application/octet-stream"}


class AwayError(Exception):
    """The service is not there, or went while it was asked."""


class Service:
    """Where the service is now, and the sizes of its namespace. ``url`` changes when it is started again."""

    def __init__(self, url: str, name: str, sizes: dict[str, Any]) -> None:
        self.url, self.name = url, name
        self.fingerprint = bytes.fromhex(sizes["fingerprint"])
        self.block_bytes: int = sizes["block_bytes"]
        self.snapshot_bytes: int = sizes["snapshot_bytes"]


class LoadEngine:
    """One engine, with a connection of its own. ``run`` goes on until ``stop`` is set.

    Args:
        service: where the service is.
        account: what was sent and acknowledged.
        random: what it asks.
        number: which of the engines it is.
    """

    def __init__(self, service: Service, account: Account, random: Random, number: int) -> None:
        self._service, self._account, self._random, self._number = service, account, random, number
        self._clock = SystemClock()
        self._http = httpx.Client(timeout=HANG_SECONDS)
        self._runs = self._conversations = 0
        self.mode = ""
        """How the last request resumed."""

    def run(self, stop: threading.Event) -> None:
        """Hold one conversation after the other."""
        while not stop.is_set():
            tokens, previous = self._opening(), None
            self._conversations += 1
            for _ in range(self._random.randint(1, TURNS)):
                tokens += self._more(self._random.randint(60, 700))
                try:
                    previous = self.serve(tokens, previous)
                except AwayError:
                    self._account.count("requests without the service")
                except AssertionError as error:
                    self._account.is_wrong(str(error))
                if stop.wait(PAUSE_SECONDS * self._random.random() * 2):
                    break
        self.close()

    def close(self) -> None:
        """Close its connection; ``run`` does so in the end."""
        self._http.close()

    def serve(self, tokens: bytes, previous: bytes | None) -> bytes | None:
        """One request from plan to release; returns the key of the snapshot it stored."""
        name = self._service.name
        planned = self._json("plan", "POST", f"/v1/namespaces/{name}/plan", content=tokens, headers=_OCTETS)
        plan, loaded = self._load(planned)
        if plan is None:
            self._release(planned, "cold")
            planned = self._json(
                "plan", "POST", f"/v1/namespaces/{name}/plan?supports=", content=tokens, headers=_OCTETS
            )
            plan, loaded = planned["plan"], []
        self.mode = plan["mode"]
        self._account.count(f"ran {self.mode}")
        is_tainted = self.mode == "bounded_replay" or any(truth != UNTAINTED for truth in loaded)
        if plan["exact"] and is_tainted:
            self._account.is_wrong(f"{plan} claims to be exact and stands on replayed KV")
        stored = self._store(plan, tokens, previous, is_tainted=is_tainted)
        ran = "fallback" if plan["plan_id"] != planned["plan"]["plan_id"] else "plan"
        self._release(planned, ran)
        return stored

    def look(self, conversation: Conversation) -> set[bytes]:
        """The blocks of a conversation that the service still has, each byte verified. Those behind a gap, too."""
        body = b"".join(conversation.keys)
        query = {"prompt_tokens": (len(conversation.keys) + 1) * BLOCK - 1, "supports": "exact_rebuild,bounded_replay"}
        planned = self._json(
            "plan",
            "POST",
            f"/v1/namespaces/{self._service.name}/plan",
            content=body,
            params=query,
            headers={"content-type": "application/vnd.kvshelf.hashes.v1"},
        )
        frames = [(header, payload) for header, payload in self._fetch(planned) if header.miss is None]
        self._release(planned, "plan")
        for header, payload in frames:
            self._account.received(header, payload)
        seen = {header.key for header, _ in frames if header.kind is FrameKind.BLOCK}
        return seen | {key for key in conversation.keys if key not in seen and self._has(key)}

    def _has(self, key: bytes) -> bool:
        path = f"/v1/namespaces/{self._service.name}/records/block/{key.hex()}"
        answer = self._call("record", "GET", path, accept=(200, 404))
        if answer.status_code == 200 and not is_payload_of(answer.content, key):
            self._account.is_wrong(f"wrong bytes under {key.hex()[:12]}")
        return bool(answer.status_code == 200)

    def _opening(self) -> bytes:
        """One of a few system prompts, and something of its own."""
        system = self._random.randrange(3)
        return struct.pack("<I", system) * (BLOCK * (2 + system)) + self._more(self._random.randint(1, 50))

    def _more(self, tokens: int) -> bytes:
        return struct.pack(f"<{tokens}I", *(self._random.getrandbits(32) for _ in range(tokens)))

    def _load(self, planned: dict[str, Any]) -> tuple[dict[str, Any] | None, list[int]]:
        """Fetch; the plan that holds now, None when a block was missing, and the truth about what came."""
        frames = self._fetch(planned)
        plan = planned["plan"]
        if frames and frames[0][0].kind is FrameKind.FALLBACK:
            plan = planned["fallback"]
            frames = frames[1:]
            self._account.count("fell back")
        if any(header.miss for header, _ in frames):
            self._account.count("fetches with a miss")
            return None, []
        truths = [self._account.received(header, payload) for header, payload in frames]
        expected = (plan["load"]["global"][1] - plan["load"]["global"][0]) // BLOCK
        expected += plan["load"]["snapshot"] is not None
        if len(frames) != expected:
            self._account.is_wrong(f"{len(frames)} records came for {plan}")
        for header, _ in frames:
            if plan["exact"] and header.provenance is not Provenance.EXACT:
                self._account.is_wrong(f"{plan} is exact and loads {header}")
        return plan, [truth for truth in truths if truth is not None]

    def _fetch(self, planned: dict[str, Any]) -> list[tuple[FrameHeader, bytes]]:
        lease = planned["lease"]
        if not lease["records"]:
            return []
        answer = self._call("fetch", "GET", f"/v1/leases/{lease['lease_id']}/fetch")
        return split(answer.content)

    def _store(self, plan: dict[str, Any], tokens: bytes, previous: bytes | None, *, is_tainted: bool) -> bytes | None:
        keys = block_keys(self._service.fingerprint, tokens, BLOCK)
        conversation = Conversation(f"{self._number}.{self._conversations}", keys)
        self._runs += 1
        truth = (self._number << 24) + self._runs if is_tainted else UNTAINTED
        new = [(key, (at + 1) * BLOCK) for at, key in enumerate(keys) if (at + 1) * BLOCK > plan["write_floor"]]
        frames = [self._frame(RecordClass.BLOCK, key, end, truth) for key, end in new]
        if keys and len(keys) * BLOCK >= plan["write_floor"]:
            frames.append(self._frame(RecordClass.SNAPSHOT, keys[-1], len(keys) * BLOCK, truth))
        if not frames:
            return previous
        query = {"plan_id": plan["plan_id"]} | ({"supersedes": previous.hex()} if previous else {})
        path = f"/v1/namespaces/{self._service.name}/store"
        answer = self._json(
            "store", "POST", path, params=query, content=b"".join(frames), headers={"content-type": MEDIA_TYPE}
        )
        stored: list[bytes] = []
        found: list[bytes] = []
        for outcome in answer["outcomes"]:
            what = f"{outcome['class']} {outcome['outcome']} {outcome['reason']}"
            self._account.count(what)
            is_kept = outcome["outcome"] in ("stored", "replaced")
            if is_kept and is_tainted and outcome["provenance"] == "exact":
                self._account.is_wrong(f"replayed KV was kept as exact: {outcome}")
            if outcome["class"] == "block" and (is_kept or outcome["outcome"] == "duplicate"):
                (stored if is_kept else found).append(bytes.fromhex(outcome["key"]))
        self._account.acknowledged(conversation, stored, found)
        return keys[-1]

    def _frame(self, kind: RecordClass, key: bytes, end: int, truth: int) -> bytes:
        size = self._service.block_bytes if kind is RecordClass.BLOCK else self._service.snapshot_bytes
        self._account.sending(kind, key, truth)
        return frame(key.hex(), end, kind=FrameKind(kind), payload=bytes(payload_of(kind, key, 0, truth, size)))

    def _release(self, planned: dict[str, Any], ran: str) -> None:
        self._call("release", "DELETE", f"/v1/leases/{planned['lease']['lease_id']}?ran={ran}", accept=(200, 404))

    def _json(self, what: str, method: str, path: str, **request: Any) -> dict[str, Any]:
        document: dict[str, Any] = self._call(what, method, path, **request).json()
        return document

    def _call(self, what: str, method: str, path: str, *, accept: tuple[int, ...] = (200,), **request: Any) -> Any:
        """Send a request. Raises AwayError where the service is gone, or does not know what it knew before it went."""
        url, started = self._service.url, self._clock.monotonic()
        try:
            answer = self._http.request(method, url + path, **request)
        except httpx.TimeoutException:
            self._account.is_wrong(f"{what} hangs: no answer within {HANG_SECONDS} s")
            raise AwayError from None
        except httpx.HTTPError:
            raise AwayError from None
        self._account.took(what, self._clock.monotonic() - started)
        if answer.status_code == 503 or (answer.status_code == 404 and "/leases/" in path and 404 not in accept):
            raise AwayError  # It stops, or stopped since: leases do not outlive it.
        assert answer.status_code in accept, f"{what}: {answer.status_code} {answer.text}"
        return answer


def is_payload_of(payload: bytes, key: bytes) -> bool:
    """Whether every byte of a block is of that key."""
    try:
        truth_of(payload, RecordClass.BLOCK, key, 0)
    except AssertionError:
        return False
    return True


def start(engines: list[LoadEngine], stop: threading.Event) -> Callable[[], None]:
    """Run engines in a thread each; returns what waits for their end."""
    threads = [threading.Thread(target=engine.run, args=(stop,)) for engine in engines]
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join(2 * HANG_SECONDS)
            assert not thread.is_alive(), "an engine hangs"

    return join
