"""Three nodes with their own disks and one pool; a node and a master of the pool are killed under load.

No request fails, and what is lost is what was on the dead node: counted, token by token.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvshelf_client import Fault, NamespaceSpec, Nodes
from tests.support.chatting import Chat, Turn
from tests.support.engine import PROFILE
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import free_port
from tests.support.served import Served, eventually

SESSIONS, FIRST_TOKENS, TURN_TOKENS, ENGINES = 50, 1000, 200, 6
BEFORE, AMID, AFTER = range(2), range(2, 5), range(5, 7)
"""Turns with all nodes; turns in the first of which a master and a node are killed; turns with all nodes again."""
BUDGET_SECONDS = 8.0
SPEC = NamespaceSpec("default", "m", "1", PROFILE, bytes_per_token=1)


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def three(tmp_path: Path, cluster: RedisCluster) -> Iterator[dict[str, Served]]:
    """The nodes by their address, which they keep when they are started again."""
    with ExitStack() as closing:
        nodes = {}
        for number in range(3):
            directory = tmp_path / str(number)
            directory.mkdir()
            node = Served(directory, "--redis-url", cluster.url, "--port", str(free_port()))
            closing.callback(node.close)
            node.start()
            nodes[node.url] = node
        yield nodes


def lost_by_home(turns: list[Turn]) -> Counter[str]:
    """The tokens that were stored and not found, by the node that the session has its place on."""
    lost: Counter[str] = Counter()
    for turn in turns:
        lost[turn.home] += turn.lost_tokens
    return +lost


def test_a_node_and_a_master_are_killed_and_only_the_nodes_share_is_lost(
    three: dict[str, Served], cluster: RedisCluster
) -> None:
    with Nodes(list(three), budget_seconds=BUDGET_SECONDS) as nodes:
        namespace = nodes.register("chat", SPEC)
        assert namespace is not None
        chat = Chat(nodes, namespace, SESSIONS, FIRST_TOKENS, TURN_TOKENS)
        chat.play(BEFORE, ENGINES)
        calm = check_calm(chat)
        dead = max(set(calm.values()), key=lambda node: list(calm.values()).count(node))
        share = sorted(session for session, home in calm.items() if home == dead)

        def strike(count: int) -> None:
            if count == SESSIONS * len(BEFORE) + 10:
                cluster.masters()[0].stop()
            if count == SESSIONS * len(BEFORE) + 25:
                three[dead].kill()

        chat.turns.clear()
        chat.play(AMID, ENGINES, lambda count: strike(count + SESSIONS * len(BEFORE)))
        check_amid(chat.turns, dead, share)
        check_counted(nodes, dead, len(share))

        chat.turns.clear()
        three[dead].start()
        cluster.wait_until_whole()
        eventually(lambda: nodes.clients[dead].health().status == "ok", 10)
        chat.play(AFTER, ENGINES)
        check_after(chat.turns, dead)


def check_calm(chat: Chat) -> dict[str, str]:
    """While all nodes are up nothing is lost and every chain is where it has its place; returns that, by session."""
    assert len(chat.turns) == SESSIONS * len(BEFORE)
    assert not lost_by_home(chat.turns)
    assert all(turn.node == turn.home and not turn.faults for turn in chat.turns)
    assert {turn.ran.mode for turn in chat.turns if turn.number} == {"snapshot"}
    homes = {turn.session: turn.home for turn in chat.turns}
    assert set(homes.values()) == set(chat.nodes.clients)
    return homes


def check_amid(turns: list[Turn], dead: str, share: list[str]) -> None:
    """No request failed, and what was lost is no more than what the dead node had."""
    assert len(turns) == SESSIONS * len(AMID)
    assert max(turn.seconds for turn in turns) < BUDGET_SECONDS
    others = [turn for turn in turns if turn.home != dead]
    assert all(turn.node == turn.home for turn in others)
    assert {fault for turn in others for fault in turn.faults} <= {Fault.MISS}, "snapshots of the master that ended"
    assert {turn.ran.mode for turn in others} <= {"snapshot", "bounded_replay"}

    lost = lost_by_home(turns)
    assert set(lost) == {dead}
    for session in share:
        own = [turn for turn in turns if turn.session == session]
        losing = [turn for turn in own if turn.lost_tokens]
        assert len(losing) <= 1, "a chain is lost once, and found again where it was stored anew"
        assert own[-1].node != dead
        assert own[-1].lost_tokens == 0
    moved = [next(turn for turn in turns if turn.session == session and turn.node != dead) for session in share]
    held = sum(turn.due_tokens for turn in moved)
    assert 0 < lost[dead] <= held, "what the dead node had"
    assert sum(turn.hit_tokens for turn in turns) >= sum(turn.due_tokens for turn in turns) - held


def check_counted(nodes: Nodes, dead: str, share: int) -> None:
    """What happened can be told from the counters."""
    counts = nodes.counters()
    instead = sum(each["placed"].get("instead", 0) for each in counts.values())
    assert share * (len(AMID) - 1) <= instead <= share * len(AMID)
    assert counts[dead]["breaker"]["opened"] >= 1
    assert counts[dead]["plan"]["breaker_open"] > 0
    assert all("nowhere" not in each["placed"] and "instead" not in counts[dead]["placed"] for each in counts.values())


def check_after(turns: list[Turn], dead: str) -> None:
    """Its sessions are back on the node that is back, with what it had; a turn later nothing is missing."""
    assert all(turn.node == turn.home and not turn.faults for turn in turns)
    assert set(lost_by_home(turns)) == {dead}
    back = [turn for turn in turns if turn.home == dead]
    assert all(turn.hit_tokens > 0 for turn in back), "its disk has what was stored before it was killed"
    assert not lost_by_home([turn for turn in turns if turn.number == AFTER[-1]])
