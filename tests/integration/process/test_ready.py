"""A start is quick however much is stored."""

from pathlib import Path

from storage.base import WriteOutcome
from storage.clock import SystemClock
from storage.ssd import SsdTier
from tests.integration.process.conftest import Serve
from tests.support.records import make_id, make_record
from tests.support.served import SMALL_BUDGET_BYTES

RECORDS = 100_000
READY_SECONDS = 2.0
STARTS = 3


def fill(directory: Path) -> None:
    """Store many small records, all of the same few bytes, the quick way: from inside."""
    tier = SsdTier(directory, clock=SystemClock(), ttl_seconds=72 * 3600, budget_bytes=SMALL_BUDGET_BYTES)
    record = make_record(0, size=64, owner="many")
    for start in range(0, RECORDS, 5_000):
        batch = [record._replace(id=make_id(number)) for number in range(start, start + 5_000)]
        assert {result.outcome for result in tier.write(batch, durable=False)} == {WriteOutcome.STORED}
    tier.close()


def test_100_000_small_records_are_ready_in_two_seconds(serve: Serve) -> None:
    """From the start of the process to the first answer, after a kill each time; the quickest of three counts."""
    served = serve()
    assert served.stop() == 0
    fill(served.data_dir)
    seconds = []
    for _ in range(STARTS):
        seconds.append(served.start())
        usage = served.http.get("/v1/stats").json()["tiers"]["ssd"]
        assert (usage["records"], usage["live_bytes"], usage["owners"]) == (
            RECORDS,
            RECORDS * 64,
            {"many": RECORDS * 64},
        )
        served.kill()
    assert min(seconds) < READY_SECONDS, seconds
