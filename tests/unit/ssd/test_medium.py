"""What a failed write is taken for."""

from pathlib import Path

import lmdb
import pytest

from storage.base import SilentObserver
from storage.clock import ManualClock
from storage.ssd.medium import Medium


@pytest.mark.parametrize(("spare_bytes", "told"), [(1 << 62, "has no room left"), (0, "cannot be written")])
def test_a_write_of_lmdb_that_was_cut_short_is_a_lack_of_room(tmp_path: Path, spare_bytes: int, told: str) -> None:
    medium = Medium("ssd", tmp_path, ManualClock(), SilentObserver(), spare_bytes=spare_bytes)
    medium.write_failed(lmdb.Error("mdb_txn_commit: Input/output error"))
    trouble = medium.trouble()
    assert trouble is not None
    assert told in trouble


def test_a_medium_that_does_not_answer_cannot_be_written(tmp_path: Path) -> None:
    medium = Medium("ssd", tmp_path / "gone", ManualClock(), SilentObserver(), spare_bytes=1)
    medium.write_failed(lmdb.Error("mdb_txn_commit: Input/output error"))
    assert "cannot be written" in (medium.trouble() or "")
