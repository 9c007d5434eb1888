"""Scrubbing: when it begins, how far it is, what it finds, and that it goes on after a restart."""

from pathlib import Path

import pytest

from service.metrics import Metrics
from service.scrub.scrubber import STEP_RECORDS, Scrubber
from service.settings import ScrubSettings
from storage.catalog import Catalog
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.records import look, make_records

WEEK_SECONDS = 7 * 86_400.0
COUNT = 3 * STEP_RECORDS


class Bench:
    """A tier with records, and its scrubber, made anew as often as a test likes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.metrics = Metrics("test")
        self.tier = MemoryTier(clock=self.clock, ttl_seconds=1e9, budget_bytes=1 << 24, name="ssd")
        self.records = make_records(range(COUNT))
        self.tier.write(self.records, durable=True)

    def open(self, bytes_per_second: int = 1000) -> Scrubber:
        settings = ScrubSettings(bytes_per_second=bytes_per_second)
        catalog = Catalog(self.directory / "scrub", max_documents=1)
        return Scrubber(self.tier, self.clock, settings, self.metrics, catalog)

    def completed(self) -> float:
        value = self.metrics.registry.get_sample_value("kvshelf_scrub_last_completed_timestamp_seconds")
        assert value is not None
        return value


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run_through(scrubber: Scrubber) -> list[float]:
    """Steps until there is nothing to do; the progress after each."""
    progress = []
    while scrubber.step():
        progress.append(scrubber.document()["progress"])
    return progress


def test_it_begins_when_it_is_time_and_not_before(bench: Bench) -> None:
    scrubber, start = bench.open(), bench.clock.now()
    assert (scrubber.step(), bench.completed()) == (0, start)
    bench.clock.advance(WEEK_SECONDS)
    progress = run_through(scrubber)
    assert progress == sorted(progress)
    assert progress[0] == pytest.approx(1 / 3)
    assert progress[-1] == 1.0
    assert bench.completed() == bench.clock.now()
    assert (scrubber.document()["state"], scrubber.document()["records"]) == ("idle", COUNT)
    assert bench.metrics.registry.get_sample_value("kvshelf_scrubbed_bytes_total") == COUNT * 1000
    assert scrubber.step() == 0, "and then not for a week"


def test_it_begins_when_it_is_asked_to(bench: Bench) -> None:
    scrubber = bench.open()
    scrubber.ask()
    assert scrubber.document()["state"] == "running"
    assert len(run_through(scrubber)) >= 3
    assert scrubber.document()["state"] == "idle"


def test_damage_is_found_before_anybody_asks(bench: Bench) -> None:
    for number in (5, 70):
        bench.records[number].payload[3] ^= 1  # type: ignore[index]
    scrubber = bench.open()
    scrubber.ask()
    run_through(scrubber)
    assert scrubber.document()["corrupt"] == 2
    assert bench.metrics.registry.get_sample_value("kvshelf_scrub_corrupt_records_total") == 2
    assert [reason.value for reason in look(bench.tier, 5, 70) if reason] == ["corrupt"] * 2
    assert bench.tier.usage().records == COUNT - 2


def test_a_pass_goes_on_after_a_restart(bench: Bench) -> None:
    scrubber = bench.open()
    scrubber.ask()
    scrubber.step()
    bench.clock.advance(61)
    scrubber.step()
    again = bench.open()
    assert again.document()["records"] == 2 * STEP_RECORDS
    run_through(again)
    assert again.document()["records"] == COUNT
    assert bench.open().document()["completed_at"] == bench.clock.now()


def test_it_can_be_off(bench: Bench) -> None:
    scrubber = bench.open(bytes_per_second=0)
    assert (scrubber.is_on, scrubber.document()["state"]) == (False, "off")
    scrubber.start()
    scrubber.stop()
