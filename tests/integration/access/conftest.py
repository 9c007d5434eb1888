"""A guarded face over in-process tiers, and a client for each token."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from storage.clock import ManualClock
from tests.support.live import Live, live
from tests.support.service import make_parts
from tests.support.tokens import two_tenants


@pytest.fixture
def face(tmp_path: Path) -> Iterator[Live]:
    parts = make_parts(tmp_path, ManualClock(), access=two_tenants())
    with live(parts) as running:
        yield running
    parts.close()


@pytest.fixture
def unguarded(tmp_path: Path) -> Iterator[Live]:
    """A face without tokens."""
    parts = make_parts(tmp_path / "unguarded", ManualClock())
    with live(parts) as running:
        yield running
    parts.close()


@pytest.fixture
def as_token(face: Live) -> Iterator[Callable[[str], httpx.Client]]:
    """Makes a client that sends a token."""
    with ExitStack() as stack:

        def make(token: str) -> httpx.Client:
            headers = {"Authorization": f"Bearer {token}"}
            return stack.enter_context(httpx.Client(base_url=face.url, headers=headers, timeout=30))

        yield make
