"""Ghosts: bounded notes of why a record is gone."""

import threading

import pytest

from kvshelf_client.words import MissReason
from storage.ghosts import Ghosts, reason_of
from tests.support.records import make_id


def test_what_was_noted_is_the_reason() -> None:
    ghosts = Ghosts(10)
    assert ghosts.reason(make_id(1)) is MissReason.NEVER_STORED
    ghosts.note(make_id(1), MissReason.EXPIRED)
    ghosts.note(make_id(2), MissReason.CORRUPT)
    ghosts.note(make_id(1, shard=1), MissReason.EVICTED)
    assert ghosts.reason(make_id(1)) is MissReason.EXPIRED
    assert ghosts.reason(make_id(1, shard=1)) is MissReason.EVICTED
    ghosts.note(make_id(1), MissReason.EVICTED)
    assert ghosts.reason(make_id(1)) is MissReason.EVICTED
    ghosts.forget([make_id(1)])
    ghosts.forget([make_id(77)])
    assert ghosts.reason(make_id(1)) is MissReason.NEVER_STORED
    assert len(ghosts) == 2


def test_noting_that_it_was_never_stored_forgets() -> None:
    ghosts = Ghosts(10)
    ghosts.note(make_id(1), MissReason.CORRUPT)
    ghosts.note(make_id(1), MissReason.NEVER_STORED)
    assert (len(ghosts), ghosts.reason(make_id(1))) == (0, MissReason.NEVER_STORED)


def test_past_the_limit_the_oldest_note_goes() -> None:
    ghosts = Ghosts(3)
    for number in (1, 2, 3):
        ghosts.note(make_id(number), MissReason.EXPIRED)
    assert [ghosts.reason(make_id(number)) for number in (1, 2, 3)] == [MissReason.EXPIRED] * 3
    ghosts.note(make_id(1), MissReason.EVICTED)
    ghosts.note(make_id(4), MissReason.EXPIRED)
    assert len(ghosts) == 3
    assert ghosts.reason(make_id(2)) is MissReason.NEVER_STORED
    assert ghosts.reason(make_id(1)) is MissReason.EVICTED


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Ghosts(limit)


def test_threads_never_break_the_limit() -> None:
    ghosts = Ghosts(50)

    def work(first: int) -> None:
        for number in range(first, first + 500):
            ghosts.note(make_id(number), MissReason.EXPIRED)
            ghosts.forget([make_id(number - 3)])

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 250, 5000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ghosts) <= 50


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("expired", MissReason.EXPIRED),
        ("budget", MissReason.EVICTED),
        ("superseded", MissReason.EVICTED),
        ("corrupt", MissReason.CORRUPT),
        ("deleted", MissReason.NEVER_STORED),
        ("replaced", MissReason.NEVER_STORED),
    ],
)
def test_every_cause_has_its_reason(cause: str, reason: MissReason) -> None:
    assert reason_of(cause) is reason
