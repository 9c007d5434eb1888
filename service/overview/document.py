"""What the page asks for: the samples it does not have yet, and the answers of now."""

from typing import Any

from service.overview.answers import answers, findings
from service.overview.history import INTERVAL_SECONDS, History, Kept
from service.overview.situation import situation
from service.shelf.parts import Parts
from service.version import __version__


def overview(parts: Parts, history: History, after: int) -> dict[str, Any]:
    """The samples after that number, as columns, and the state of now. Blocks as a scrape does."""
    now = history.now()
    kept = history.after(0)
    facts = situation(parts, kept, now)
    found = findings(facts)
    names = sorted(now.sample)
    return {
        "version": __version__,
        "health": {"status": facts.health.status, "causes": list(facts.health.causes)},
        "window_seconds": facts.seconds,
        "window": facts.window,
        "answers": [
            {**answer._asdict(), "notes": [note._asdict() for note in answer.notes]} for answer in answers(facts, found)
        ],
        "findings": [one._asdict() for one in found],
        "shelves": [{**shelf.state._asdict(), "name": shelf.name} for shelf in facts.shelves],
        "interval_seconds": INTERVAL_SECONDS,
        "names": names,
        "samples": [_row(one, names) for one in kept if one.number > after],
        "now": _row(now, names),
    }


def _row(kept: Kept, names: list[str]) -> dict[str, Any]:
    return {"number": kept.number, "at": kept.at, "values": [kept.sample.get(name, 0.0) for name in names]}
