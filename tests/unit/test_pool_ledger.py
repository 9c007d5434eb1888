"""What the DRAM pool knows of records it cannot watch."""

from kvshelf_client.words import MissReason, Provenance
from storage.clock import ManualClock
from storage.dram.header import Head
from storage.dram.ledger import Ledger
from tests.support.observers import RecordingObserver
from tests.support.records import make_id


class Desk:
    """A ledger for three records, with its clock and observer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.observer = RecordingObserver()
        self.ledger = Ledger(clock=self.clock, observer=self.observer, name="dram", limit=3)

    def head(self, size: int, owner: str = "a") -> Head:
        return Head(Provenance.EXACT, 1, self.clock.now(), size, 0, owner=owner)

    def see(self, number: int, size: int = 10, owner: str = "a") -> None:
        self.ledger.seen(make_id(number), self.head(size, owner), self.clock.monotonic() + 60)


def test_what_is_gone_before_its_deadline_was_evicted_and_after_it_expired() -> None:
    desk = Desk()
    desk.see(1)
    desk.see(2)
    desk.clock.advance(59.9)
    assert desk.ledger.absent(make_id(1)) is MissReason.EVICTED
    desk.clock.advance(0.1)
    assert desk.ledger.absent(make_id(2)) is MissReason.EXPIRED
    assert desk.ledger.absent(make_id(3)) is MissReason.NEVER_STORED
    for number, reason in ((1, MissReason.EVICTED), (2, MissReason.EXPIRED)):
        assert desk.ledger.absent(make_id(number)) is reason, "and is told again"
    assert desk.observer.evicted_records == {"budget": 1, "expired": 1}
    assert [round(age, 6) for age in desk.observer.ages] == [60.0]
    assert desk.ledger.totals() == (0, 0, {})


def test_seeing_again_changes_the_accounts_and_the_order() -> None:
    desk = Desk()
    for number in (1, 2, 3):
        desk.see(number)
    desk.see(1, size=25, owner="b")
    assert desk.ledger.totals() == (3, 45, {"a": 20, "b": 25})
    assert desk.ledger.longest_unseen(2) == [make_id(2), make_id(3)]
    assert desk.ledger.longest_unseen(9) == [make_id(2), make_id(3), make_id(1)]
    assert len(desk.ledger.check()) == 3


def test_past_the_limit_the_longest_unseen_is_forgotten_without_a_word() -> None:
    desk = Desk()
    for number in (1, 2, 3, 4):
        desk.see(number)
    assert desk.ledger.known(make_id(1)) is None
    assert desk.ledger.absent(make_id(1)) is MissReason.NEVER_STORED
    assert desk.ledger.totals() == (3, 30, {"a": 30})
    assert not desk.observer.evicted_records


def test_dropping_notes_the_cause_until_it_is_seen_again() -> None:
    desk = Desk()
    desk.see(1)
    assert desk.ledger.dropped(make_id(1), "superseded", 10) is MissReason.EVICTED
    assert desk.ledger.absent(make_id(1)) is MissReason.EVICTED
    desk.see(1)
    assert desk.ledger.dropped(make_id(1), "deleted", 10) is MissReason.NEVER_STORED
    assert desk.ledger.absent(make_id(1)) is MissReason.NEVER_STORED
    assert desk.observer.evicted_records == {"superseded": 1, "deleted": 1}
