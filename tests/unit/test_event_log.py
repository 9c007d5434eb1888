"""What tiers notice, as lines of the log: bounded, and it says what was left out."""

from structlog.testing import CapturingLogger

from service.metrics.events import LINES_A_MINUTE, EventLog
from storage.clock import ManualClock


def test_an_event_is_a_line() -> None:
    log = CapturingLogger()
    EventLog(ManualClock(), log).write("ssd", "record_corrupt", {"segment": 3, "id": "0123456789ab"})
    EventLog(ManualClock(), log).write("ssd", "index_repaired", {"lost": 2})
    assert [(call.method_name, call.args, call.kwargs) for call in log.calls] == [
        ("warning", ("record_corrupt",), {"tier": "ssd", "segment": 3, "id": "0123456789ab"}),
        ("info", ("index_repaired",), {"tier": "ssd", "lost": 2}),
    ]


def test_a_flood_is_cut_and_counted() -> None:
    log, clock = CapturingLogger(), ManualClock()
    events = EventLog(clock, log)
    for _ in range(LINES_A_MINUTE + 70):
        events.write("ssd", "record_corrupt", {})
    events.write("ssd", "write_failed", {})
    assert len(log.calls) == LINES_A_MINUTE + 1, "each event is counted by itself"
    clock.advance(60)
    events.write("ssd", "record_corrupt", {})
    assert log.calls[-1].kwargs == {"tier": "ssd", "left_out": 70}
    clock.advance(60)
    events.write("ssd", "record_corrupt", {})
    assert log.calls[-1].kwargs == {"tier": "ssd"}
