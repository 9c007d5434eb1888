"""The numbers of the wire and of the disk never change."""

import pytest

from kvshelf_client.frames import FrameKind
from kvshelf_client.words import MissReason, Provenance, RecordClass


def test_numbers_are_what_they_always_were() -> None:
    assert {word.name: word.value for word in RecordClass} == {"BLOCK": 1, "SNAPSHOT": 2}
    assert {word.name: word.value for word in Provenance} == {"REPLAYED": 1, "EXACT": 2}
    assert {word.value: word.code for word in MissReason} == {
        "never_stored": 1,
        "expired": 2,
        "evicted": 3,
        "corrupt": 4,
        "tier_down": 5,
    }


def test_zero_is_never_a_number() -> None:
    for words in (RecordClass, Provenance, FrameKind):
        assert 0 not in list(words)
    assert 0 not in [reason.code for reason in MissReason]


def test_exact_is_the_better_provenance() -> None:
    assert min([Provenance.EXACT, Provenance.REPLAYED]) is Provenance.REPLAYED


def test_frames_and_records_agree_on_classes() -> None:
    assert [FrameKind[word.name].value for word in RecordClass] == [word.value for word in RecordClass]


@pytest.mark.parametrize("reason", list(MissReason))
def test_miss_reasons_round_trip(reason: MissReason) -> None:
    assert MissReason.from_code(reason.code) is reason


@pytest.mark.parametrize("code", [-1, 0, 6, 255])
def test_codes_of_no_reason_are_refused(code: int) -> None:
    with pytest.raises(ValueError, match=f"{code} is no miss reason"):
        MissReason.from_code(code)
