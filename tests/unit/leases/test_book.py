"""The book of leases: its bounds, and what happens when uses, ends and time meet."""

import itertools
import threading
from dataclasses import replace
from random import Random

import pytest

from service.leases.book import LeaseBook, LeaseLimitError, UnknownLeaseError
from service.leases.lease import Lease
from storage.base import Loaded
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.leases import NAMESPACE, OpenHold, make_lease
from tests.support.namespaces import namespace
from tests.support.records import ids_of, make_records


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def book(clock: ManualClock) -> LeaseBook:
    return LeaseBook(clock, max_leases=3, max_records=10)


def is_there(book: LeaseBook, lease_id: str) -> bool:
    """Whether a lease can be used. It is renewed by that."""
    try:
        with book.use(None, lease_id):
            return True
    except UnknownLeaseError:
        return False


def test_a_book_counts_leases_and_the_records_of_every_hold(book: LeaseBook) -> None:
    assert (len(book), book.records) == (0, 0)
    assert book.add(make_lease("a", holds=[OpenHold(2), OpenHold(3)], snapshot=OpenHold(1))) is None
    assert book.add(make_lease("b")) is None
    assert (len(book), book.records) == (2, 6)
    book.check_integrity()


def test_one_lease_too_many_is_refused_and_keeps_its_holds(book: LeaseBook) -> None:
    for lease_id in "abc":
        book.add(make_lease(lease_id))
    hold = OpenHold(1)
    with pytest.raises(LeaseLimitError):
        book.add(make_lease("d", holds=[hold]))
    assert hold.is_held
    assert (len(book), book.records) == (3, 0)
    assert not is_there(book, "d")
    book.release(None, "a")
    book.add(make_lease("d", holds=[hold]))
    book.check_integrity()


def test_one_record_too_many_is_refused(book: LeaseBook) -> None:
    book.add(make_lease("a", holds=[OpenHold(4)]))
    with pytest.raises(LeaseLimitError):
        book.add(make_lease("b", holds=[OpenHold(7)]))
    book.add(make_lease("c", holds=[OpenHold(6)]))
    assert book.records == 10
    with pytest.raises(LeaseLimitError):
        book.add(make_lease("d", holds=[OpenHold(1)]))
    book.add(make_lease("e"))
    book.check_integrity()


def test_keys_count_where_they_are_more_than_the_records(book: LeaseBook) -> None:
    keys = [bytes([number]) * 32 for number in range(6)]
    book.add(make_lease("a", keys=keys))
    assert book.records == 0
    with pytest.raises(LeaseLimitError, match=r"at most 10 .* needs 5"):
        book.add(make_lease("b", holds=[OpenHold(5)], keys=keys[:5]))
    book.add(make_lease("b", holds=[OpenHold(4)], keys=keys[:4]))
    book.check_integrity()
    with pytest.raises(LeaseLimitError):
        book.add(make_lease("c", keys=keys[:1]))
    book.release(None, "a")
    book.add(make_lease("c", keys=keys))
    book.check_integrity()


def test_room_is_what_a_lease_of_the_request_would_find(book: LeaseBook) -> None:
    book.add(make_lease("a", "request", holds=[OpenHold(7)]))
    book.check_room((None, NAMESPACE.fingerprint, "other"), 3)
    book.check_room((None, NAMESPACE.fingerprint, "request"), 10)
    for request_id, weight in (("other", 4), ("request", 11)):
        with pytest.raises(LeaseLimitError):
            book.check_room((None, NAMESPACE.fingerprint, request_id), weight)
    book.add(make_lease("b"))
    book.add(make_lease("c"))
    book.check_room((None, NAMESPACE.fingerprint, "request"), 0)
    with pytest.raises(LeaseLimitError):
        book.check_room((None, NAMESPACE.fingerprint, "other"), 0)


class CuriousHold(OpenHold):
    """A hold during whose release somebody else looks into the book."""

    def __init__(self, book: LeaseBook) -> None:
        super().__init__(1)
        self._book = book
        self.waited = 0

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        other = threading.Thread(target=self._book.check_integrity, daemon=True)
        other.start()
        other.join(5)
        self.waited += other.is_alive()
        super().release()


def test_nobody_waits_while_a_lease_is_let_go(book: LeaseBook, clock: ManualClock) -> None:
    holds = [CuriousHold(book) for _ in range(5)]
    book.add(make_lease("a", holds=[holds[0]]))
    book.release(None, "a")
    book.add(make_lease("b", "request", holds=[holds[1]]))
    book.add(make_lease("c", "request", holds=[holds[2]]))
    clock.advance(60)
    book.expire()
    book.add(make_lease("d", holds=[holds[3]]))
    with book.use(None, "d"):
        book.release(None, "d")
    book.add(make_lease("e", holds=[holds[4]]))
    book.release_all()
    assert [(hold.is_held, hold.waited) for hold in holds] == [(False, 0)] * 5


def test_whoever_wants_is_told_of_each_lease_that_is_renewed(clock: ManualClock) -> None:
    seen: list[str] = []
    book = LeaseBook(clock, max_leases=3, max_records=10, renewed=lambda lease: seen.append(lease.lease_id))
    book.add(make_lease("a"))
    book.add(make_lease("b"))
    assert seen == []
    with book.use(None, "a"):
        assert seen == ["a"]
    assert seen == ["a", "a"]
    clock.advance(60)
    assert not is_there(book, "b")
    assert seen == ["a", "a"]


def test_a_second_plan_of_a_request_takes_the_place_of_the_first(book: LeaseBook) -> None:
    first = make_lease("a", "request", holds=[(hold := OpenHold(4))])
    book.add(first)
    assert book.add(make_lease("b", "request", holds=[OpenHold(1)])) is first
    assert not hold.is_held
    assert (len(book), book.records) == (1, 1)
    with pytest.raises(UnknownLeaseError):
        book.release(None, "a")
    book.release(None, "b")
    assert book.add(make_lease("c", "request")) is None, "nothing is left to take the place of"
    book.check_integrity()


def test_what_a_second_plan_frees_counts_for_it(book: LeaseBook) -> None:
    book.add(make_lease("a", "request", holds=[OpenHold(9)]))
    book.add(make_lease("b"))
    book.add(make_lease("c"))
    book.add(make_lease("d", "request", holds=[OpenHold(10)]))
    assert (len(book), book.records) == (3, 10)


def test_a_second_plan_that_is_refused_leaves_the_first_alone(book: LeaseBook) -> None:
    book.add(make_lease("a", "request", holds=[(hold := OpenHold(9))]))
    with pytest.raises(LeaseLimitError):
        book.add(make_lease("b", "request", holds=[OpenHold(11)]))
    assert hold.is_held
    assert is_there(book, "a")
    assert book.records == 9


def test_equal_request_ids_of_two_namespaces_are_two_requests(book: LeaseBook) -> None:
    book.add(make_lease("a", "request"))
    assert book.add(make_lease("b", "request", of=namespace(salt="other"))) is None
    assert len(book) == 2


def test_the_lease_of_another_owner_is_as_unknown_as_none(book: LeaseBook) -> None:
    mine = replace(make_lease("a", "request"), owner="mine")
    book.add(mine)
    for owner in ("other", None):
        assert book.add(replace(make_lease(f"of {owner}", "request"), owner=owner)) is None
        for verb in (book.release, lambda owner, lease_id: book.use(owner, lease_id).__enter__()):
            with pytest.raises(UnknownLeaseError) as foreign:
                verb(owner, "a")
            with pytest.raises(UnknownLeaseError) as absent:
                verb(owner, "b")
            assert str(foreign.value).replace("a", "b") == str(absent.value)
    assert book.release("mine", "a") is mine
    book.check_integrity()


def test_a_lease_lives_its_time_from_its_last_use(book: LeaseBook, clock: ManualClock) -> None:
    book.add(make_lease("a", ttl_seconds=60))
    clock.advance(59.5)
    assert is_there(book, "a")
    clock.advance(59.5)
    assert book.expire() == []
    assert is_there(book, "a")
    clock.advance(60)
    assert not is_there(book, "a")
    assert len(book) == 1, "nobody has looked yet"
    assert [lease.lease_id for lease in book.expire()] == ["a"]
    assert len(book) == 0


def test_only_what_is_over_ends(book: LeaseBook, clock: ManualClock) -> None:
    holds = [OpenHold(1), OpenHold(1)]
    book.add(make_lease("a", ttl_seconds=10, holds=[holds[0]]))
    book.add(make_lease("b", ttl_seconds=20, holds=[holds[1]]))
    clock.advance(10)
    assert [lease.lease_id for lease in book.expire()] == ["a"]
    assert [hold.is_held for hold in holds] == [False, True]
    assert book.records == 1
    book.check_integrity()


def test_a_lease_that_is_over_can_still_be_released(book: LeaseBook, clock: ManualClock) -> None:
    book.add(make_lease("a"))
    clock.advance(61)
    assert book.release(None, "a").lease_id == "a"
    for lease_id in ("a", "never given"):
        with pytest.raises(UnknownLeaseError):
            book.release(None, lease_id)


def test_a_lease_in_use_does_not_end_however_late(book: LeaseBook, clock: ManualClock) -> None:
    book.add(make_lease("a", holds=[(hold := OpenHold(1))]))
    with book.use(None, "a"):
        clock.advance(1000)
        assert book.expire() == []
        assert is_there(book, "a"), "it lives for everybody"
        clock.advance(30)
        assert hold.is_held
    clock.advance(59)
    assert is_there(book, "a"), "its time begins at the end of the use"


def test_a_lease_released_in_use_is_let_go_after_the_last_use(book: LeaseBook) -> None:
    book.add(make_lease("a", holds=[(hold := OpenHold(3))]))
    with book.use(None, "a"):
        with book.use(None, "a"):
            book.release(None, "a")
            assert (len(book), book.records) == (0, 0)
            assert not is_there(book, "a")
        assert hold.is_held
    assert not hold.is_held
    book.check_integrity()


def test_a_lease_whose_place_was_taken_in_use_is_let_go_after_it(book: LeaseBook) -> None:
    book.add(make_lease("a", "request", holds=[(first := OpenHold(3))]))
    with book.use(None, "a"):
        book.add(make_lease("b", "request", holds=[(second := OpenHold(2))]))
        assert first.is_held
    assert not first.is_held
    assert second.is_held
    assert book.records == 2
    book.check_integrity()


def test_a_use_that_fails_ends_all_the_same(book: LeaseBook, clock: ManualClock) -> None:
    book.add(make_lease("a", holds=[(hold := OpenHold(1))]))
    with pytest.raises(KeyError), book.use(None, "a"):
        raise KeyError
    clock.advance(60)
    assert len(book.expire()) == 1
    assert not hold.is_held


def test_a_stop_ends_everything(book: LeaseBook) -> None:
    holds = [OpenHold(1), OpenHold(1)]
    book.add(make_lease("a", holds=[holds[0]]))
    book.add(make_lease("b", snapshot=holds[1]))
    with book.use(None, "a"):
        assert {lease.lease_id for lease in book.release_all()} == {"a", "b"}
        assert [hold.is_held for hold in holds] == [True, False]
    assert not holds[0].is_held
    assert (len(book), book.records, book.release_all()) == (0, 0, [])


def test_accounts_that_do_not_add_up_are_found(book: LeaseBook) -> None:
    lease = make_lease("a", holds=[OpenHold(2)])
    book.add(lease)
    lease.blocks[0].keep(0, 1)
    with pytest.raises(AssertionError, match="leases hold 1 records, the book says 2"):
        book.check_integrity()


def test_threads_that_plan_fetch_release_and_expire_leave_nothing_behind(clock: ManualClock) -> None:
    """A read within a use never meets a released hold, and in the end nothing is pinned."""
    tier = MemoryTier(clock=clock, ttl_seconds=3600, budget_bytes=1 << 20)
    ids = ids_of(records := make_records(range(8), size=100))
    tier.write(records, durable=False)
    book = LeaseBook(clock, max_leases=6, max_records=30)
    numbers = itertools.count()
    failures: list[BaseException] = []
    outcomes: set[str] = set()

    def hold_some(random: Random) -> Lease:
        return make_lease(
            f"lease {next(numbers)}",
            f"request {random.randrange(8)}",
            holds=[tier.hold(ids[: random.randint(0, 8)])],
            ttl_seconds=random.choice([0.5, 5.0]),
        )

    def work(seed: int) -> None:
        random, mine = Random(seed), [""]
        try:
            for _ in range(300):
                one_call(random, mine)
        except BaseException as error:  # noqa: BLE001 - the main thread reports whatever it was.
            failures.append(error)

    def one_call(random: Random, mine: list[str]) -> None:
        what = random.choice(["add", "add", "use", "use", "use", "release", "expire", "pass"])
        if what == "add":
            lease = hold_some(random)
            try:
                book.add(lease)
                mine.append(lease.lease_id)
            except LeaseLimitError:
                lease.let_go()
                what = "limit"
        elif what == "expire":
            book.expire()
        elif what == "pass":
            clock.advance(0.2)
        else:
            try:
                if what == "release":
                    book.release(None, random.choice(mine[-4:]))
                else:
                    with book.use(None, random.choice(mine[-4:])) as lease:
                        (hold,) = lease.blocks
                        assert all(isinstance(found, Loaded) for found in hold.read(0, len(hold.entries)))
            except UnknownLeaseError:
                what = "unknown"
        outcomes.add(what)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert outcomes == {"add", "limit", "use", "release", "expire", "pass", "unknown"}
    book.check_integrity()
    book.release_all()
    assert (len(book), book.records) == (0, 0)
    assert tier.usage().pinned_bytes == 0
    tier.check_integrity()


def owned(lease_id: str, owner: str | None, holds: int = 0, request_id: str | None = None) -> Lease:
    return replace(make_lease(lease_id, request_id, holds=[OpenHold(holds)] if holds else []), owner=owner)


def test_one_owner_has_no_more_than_its_share(clock: ManualClock) -> None:
    book = LeaseBook(clock, max_leases=4, max_records=20, max_tenant_share=0.5)
    book.add(owned("a", "loud", 4))
    book.add(owned("b", "loud", 6, "again"))
    for lease in (owned("c", "loud"), owned("c", "loud", 1)):
        with pytest.raises(LeaseLimitError, match="at most 2 of one caller, 4 of all"):
            book.add(lease)
    book.add(owned("c", "loud", 6, "again"))
    with pytest.raises(LeaseLimitError, match="at most 10 of one caller, 20 of all"):
        book.add(owned("d", "loud", 7, "again"))
    book.add(owned("d", "quiet", 10))
    with pytest.raises(LeaseLimitError):
        book.check_room(("quiet", NAMESPACE.fingerprint, "more"), 1)
    book.check_integrity()
    book.release("loud", "a")
    book.add(owned("e", "loud", 4))
    book.check_integrity()


def test_without_owners_there_is_no_share(clock: ManualClock) -> None:
    book = LeaseBook(clock, max_leases=2, max_records=20, max_tenant_share=0.5)
    for lease_id in "ab":
        book.add(owned(lease_id, None, 10))
    with pytest.raises(LeaseLimitError):
        book.add(owned("c", None))
    book.check_integrity()
