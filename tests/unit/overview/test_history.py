"""Samples are taken on time, kept for an hour, and handed out once."""

from pathlib import Path

import pytest

from service.overview.document import overview
from service.overview.history import INTERVAL_SECONDS, SAMPLES, History
from service.shelf.parts import Parts
from storage.clock import ManualClock
from tests.support.service import make_parts


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def parts(tmp_path: Path, clock: ManualClock) -> Parts:
    return make_parts(tmp_path, clock)


@pytest.fixture
def history(parts: Parts) -> History:
    return History(parts)


def test_a_sample_is_taken_when_it_is_due(history: History, clock: ManualClock) -> None:
    history.step()
    clock.advance(INTERVAL_SECONDS - 0.01)
    history.step()
    assert [kept.number for kept in history.after(0)] == [1]
    clock.advance(0.01)
    history.step()
    assert [kept.number for kept in history.after(0)] == [1, 2]
    assert [kept.number for kept in history.after(1)] == [2]
    assert history.after(2) == []


def test_an_hour_is_kept(history: History, clock: ManualClock) -> None:
    for _ in range(SAMPLES + 3):
        history.step()
        clock.advance(INTERVAL_SECONDS)
    numbers = [kept.number for kept in history.after(0)]
    assert numbers == list(range(4, SAMPLES + 4))


def test_the_document_has_what_is_new_in_columns(parts: Parts, history: History, clock: ManualClock) -> None:
    history.step()
    clock.advance(INTERVAL_SECONDS)
    history.step()
    parts.metrics.prompt_tokens.labels("ssd").inc(7)
    document = overview(parts, history, after=1)
    assert [row["number"] for row in document["samples"]] == [2]
    at = document["names"].index("tokens.ssd")
    assert (document["samples"][0]["values"][at], document["now"]["values"][at]) == (0.0, 7.0)
    assert document["now"]["number"] == 3
    assert document["window_seconds"] == INTERVAL_SECONDS
    assert document["answers"][0]["answer"].startswith("The SSD")


def test_the_first_question_may_come_before_the_first_sample(parts: Parts, history: History) -> None:
    document = overview(parts, history, after=0)
    assert document["samples"] == []
    assert document["window_seconds"] == 0
