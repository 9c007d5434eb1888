"""Where chains are placed: evenly, the same for everybody, and moved no more than a node that comes or goes must."""

import hashlib
from array import array
from collections import Counter

import pytest

from kvshelf_client.hashing import block_keys
from kvshelf_client.placement import default_affinity, placed
from tests.support.wire import BLOCK_TOKENS, KEYS, NAMESPACE, TOKENS

NODES = [f"http://10.0.0.{number}:8710" for number in range(5)]
SESSIONS = [f"session-{number}".encode() for number in range(5000)]


def owners(nodes: list[str]) -> list[str]:
    return [placed(nodes, session)[0] for session in SESSIONS]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_node_has_its_share(count: int) -> None:
    counts = Counter(owners(NODES[:count]))
    share = len(SESSIONS) / count
    assert len(counts) == count
    assert all(0.9 * share <= held <= 1.1 * share for held in counts.values()), counts


def test_the_order_in_which_nodes_are_named_is_of_no_matter() -> None:
    for session in SESSIONS[:100]:
        assert placed(NODES, session) == placed(NODES[::-1], session) == placed(NODES[2:] + NODES[:2], session)


def test_a_node_that_leaves_moves_what_it_had_and_nothing_else() -> None:
    gone, left = NODES[2], NODES[:2] + NODES[3:]
    before, after = owners(NODES), owners(left)
    moved = [(was, now) for was, now in zip(before, after, strict=True) if was != now]
    assert {was for was, _ in moved} == {gone}
    assert len(moved) == before.count(gone)
    heirs = Counter(now for _, now in moved)
    assert all(0.75 * len(moved) / 4 <= heirs[node] <= 1.25 * len(moved) / 4 for node in left), heirs


def test_a_node_that_joins_takes_its_share_from_all() -> None:
    before, after = owners(NODES[:4]), owners(NODES)
    moved = [(was, now) for was, now in zip(before, after, strict=True) if was != now]
    assert {now for _, now in moved} == {NODES[4]}
    assert 0.9 * len(SESSIONS) / 5 <= len(moved) <= 1.1 * len(SESSIONS) / 5
    assert set(Counter(was for was, _ in moved)) == set(NODES[:4])


def test_without_a_node_the_others_keep_their_order() -> None:
    for session in SESSIONS[:100]:
        order = placed(NODES, session)
        for gone in NODES:
            assert placed([node for node in NODES if node != gone], session) == [n for n in order if n != gone]


def test_the_place_is_what_the_page_says() -> None:
    scores = {node: hashlib.sha256(node.encode() + b"\0" + SESSIONS[0]).hexdigest() for node in NODES}
    assert placed(NODES, SESSIONS[0]) == sorted(NODES, key=scores.__getitem__, reverse=True)


def test_without_a_key_the_first_block_decides_however_the_prompt_is_given() -> None:
    given = default_affinity(NAMESPACE, TOKENS, None)
    assert given == KEYS[0]
    size = BLOCK_TOKENS * 4
    assert default_affinity(NAMESPACE, TOKENS[:size], None) == given
    assert default_affinity(NAMESPACE, array("I", TOKENS), None) == given
    assert default_affinity(NAMESPACE, TOKENS[:size] + b"more", None) == given
    assert default_affinity(NAMESPACE, b"else" + TOKENS[4:], None) != given
    for hashes in (KEYS, tuple(KEYS[:1]), b"".join(KEYS), bytearray(KEYS[0])):
        assert default_affinity(NAMESPACE, None, hashes) == given


def test_what_goes_into_every_key_goes_into_the_place() -> None:
    (key,) = block_keys(NAMESPACE.fingerprint, TOKENS[: BLOCK_TOKENS * 4], BLOCK_TOKENS, b"adapter")
    assert default_affinity(NAMESPACE, TOKENS, None, b"adapter") == key != KEYS[0]


def test_a_prompt_without_a_whole_block_has_a_place_too() -> None:
    assert default_affinity(NAMESPACE, TOKENS[: BLOCK_TOKENS * 4 - 4], None) == TOKENS[: BLOCK_TOKENS * 4 - 4]
    assert default_affinity(NAMESPACE, b"", None) == default_affinity(NAMESPACE, None, []) == b""
    with pytest.raises(ValueError, match="u32"):
        default_affinity(NAMESPACE, b"12345", None)
