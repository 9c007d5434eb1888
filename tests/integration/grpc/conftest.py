"""Both faces over in-process tiers on a manual clock, and engines that speak gRPC without the shipped client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import load_settings
from storage.clock import ManualClock
from tests.support.grpc_engine import GrpcEngine, grpc_engine
from tests.support.live import Live, live
from tests.support.service import make_parts

MAX_CALLS = 4


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def face(tmp_path: Path, clock: ManualClock) -> Iterator[Live]:
    settings = load_settings(flags={"grpc": {"port": 0, "max_calls": MAX_CALLS}}, environment={})
    parts = make_parts(tmp_path, clock, settings=settings)
    with live(parts) as running:
        yield running
    parts.close()


@pytest.fixture
def engine(face: Live) -> Iterator[GrpcEngine]:
    with grpc_engine(face.grpc_url) as found:
        yield found
