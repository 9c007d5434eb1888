"""What the page asks for: the samples it does not have yet, and the answers of now."""

from typing import Any

from service.overview.answers import answers
from service.overview.history import INTERVAL_SECONDS, History, Kept
from service.shelf.condition import health
from service.shelf.parts import Parts
from service.version import __version__

WINDOW_SECONDS = 600.0
"""How far back the answers look, or as far as there are samples."""


def overview(parts: Parts, history: History, after: int) -> dict[str, Any]:
    """The samples after that number, as columns, and the state of now. Blocks as a scrape does."""
    now = history.now()
    kept = history.after(0)
    before = next((one for one in kept if now.at - one.at <= WINDOW_SECONDS), now)
    state = health(parts)
    names = sorted(now.sample)
    return {
        "version": __version__,
        "health": {"status": state.status, "causes": list(state.causes)},
        "window_seconds": now.at - before.at,
        "answers": [answer._asdict() for answer in answers(before.sample, now.sample, now.at - before.at)],
        "interval_seconds": INTERVAL_SECONDS,
        "names": names,
        "samples": [_row(one, names) for one in kept if one.number > after],
        "now": _row(now, names),
    }


def _row(kept: Kept, names: list[str]) -> dict[str, Any]:
    return {"number": kept.number, "at": kept.at, "values": [kept.sample.get(name, 0.0) for name in names]}
