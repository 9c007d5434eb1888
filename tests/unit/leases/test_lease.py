"""What a lease holds, and which of its plans is in force."""

import pytest

from service.leases.lease import Answer
from tests.support.leases import OpenHold, make_lease


def test_a_lease_without_holds_holds_nothing() -> None:
    lease = make_lease("a")
    assert lease.records == 0
    lease.let_go()


def test_letting_go_releases_every_hold_once_and_for_all() -> None:
    holds = [OpenHold(1), OpenHold(2), OpenHold(3)]
    lease = make_lease("a", holds=holds[:2], snapshot=holds[2])
    assert lease.records == 6
    for _ in range(2):
        lease.let_go()
        assert lease.records == 0
        assert not any(hold.is_held for hold in holds)


@pytest.mark.parametrize("has_fallback", [False, True])
def test_the_fallback_is_in_force_once_it_was_fallen_back_to(has_fallback: bool) -> None:
    lease = make_lease("a")
    other = Answer("fallback", lease.primary.plan)
    lease.fallback = other if has_fallback else None
    assert lease.current is lease.primary
    lease.fell_back = True
    assert lease.current is (other if has_fallback else lease.primary)
