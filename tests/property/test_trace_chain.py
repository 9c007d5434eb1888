"""Chained hashes of traces against a plain trie, on random sessions with every kind of change between two requests."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from service.traces.base import Run, TraceRequest
from service.traces.chain import ChainHasher, common_blocks
from tests.support.trie import Trie

_BLOCK = 4
_ids = st.lists(st.integers(0, 3), max_size=12)
_runs = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), max_size=5).map(
    lambda pairs: tuple(Run(*pair) for pair in pairs)
)


def _request(runs: tuple[Run, ...], session: str | None = "a", agent: str | None = None) -> TraceRequest:
    blocks = sum(run.length for run in runs)
    return TraceRequest(0.0, session, agent, session, blocks * _BLOCK + 1, 0, _BLOCK, runs)


def _request_of_ids(ids: list[int], session: str | None, agent: str | None) -> TraceRequest:
    return _request(tuple(Run(block_id, 1) for block_id in ids), session, agent)


def _expanded(runs: tuple[Run, ...]) -> list[int]:
    return [block_id for run in runs for block_id in range(run.first_id, run.first_id + run.length)]


_sessions = st.sampled_from(["a", "b", None])
_agents = st.sampled_from([None, "sub"])


@given(st.lists(st.tuples(_ids, _sessions, _agents), max_size=20), st.data())
def test_prefixes_of_keys_are_prefixes_of_ids(
    prompts: list[tuple[list[int], str | None, str | None]], data: st.DataObject
) -> None:
    tries: dict[str | None, Trie] = {}
    hasher = ChainHasher(bytes(32))
    seen: set[bytes] = set()
    for ids, session, agent in prompts:
        hashes, keys = hasher.blocks_of(_request_of_ids(ids, session, agent))
        assert len(keys) == len(hashes) == len(ids)
        known = [key in seen for key in keys]
        hit = tries.setdefault(session, Trie()).insert(ids)
        assert known == [True] * hit + [False] * (len(ids) - hit)
        seen.update(keys)
        if data.draw(st.booleans()):
            hasher.forget(session)


@given(st.lists(_runs, max_size=8))
def test_what_is_reused_equals_what_is_computed_afresh(prompts: list[tuple[Run, ...]]) -> None:
    """And the way an id list is cut into runs changes nothing."""
    fingerprint = hashlib.sha256(b"n").digest()
    kept = ChainHasher(fingerprint)
    for runs in prompts:
        afresh = ChainHasher(fingerprint).blocks_of(_request_of_ids(_expanded(runs), "a", None))
        assert kept.blocks_of(_request(runs)) == afresh


@given(_runs, _runs)
def test_common_blocks(one: tuple[Run, ...], other: tuple[Run, ...]) -> None:
    same = 0
    for left, right in zip(_expanded(one), _expanded(other), strict=False):
        if left != right:
            break
        same += 1
    assert common_blocks(one, other) == common_blocks(other, one) == same


def test_sessions_namespaces_and_no_session_are_kept_apart() -> None:
    runs = (Run(1, 3),)
    hasher = ChainHasher(bytes(32))
    keys = {
        key
        for request in (_request(runs, "a"), _request(runs, "b"), _request(runs, ""), _request(runs, None))
        for key in hasher.blocks_of(request).keys
    }
    keys |= set(ChainHasher(b"\x01" * 32).blocks_of(_request(runs, "a")).keys)
    assert len(keys) == 15


def test_the_first_hash_byte_by_byte() -> None:
    root = hashlib.sha256(b"kvshelf trace v1\nsession\na").digest()
    first = hashlib.sha256(root + (5).to_bytes(8, "little")).digest()
    second = hashlib.sha256(first + (6).to_bytes(8, "little")).digest()
    blocks = ChainHasher(b"\x07" * 32).blocks_of(_request((Run(5, 2),), "a"))
    assert blocks.hashes == [first, second]
    assert blocks.keys[1] == hashlib.sha256(b"\x07" * 32 + second).digest()
