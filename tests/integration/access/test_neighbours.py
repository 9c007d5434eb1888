"""A tenant's flood takes nothing from another: measured over the real service, on a real disk, with either pool."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from service.access import Scope
from service.access.tokens import describe_entry
from service.settings import Settings, load_settings
from service.shelf.assemble import open_service
from storage.clock import SystemClock
from tests.support.live import live
from tests.support.neighbours import HitRate, Neighbours

MIB = 1 << 20
OWN = {"store_budget_bytes": 16 * MIB, "pool_budget_bytes": 1 * MIB}
TOKENS = {name: f"kvs_{name}_{'0' * 64}" for name in ("worker", "flooder")}
SCOPES = frozenset({Scope.READ, Scope.WRITE})


def settings_of(directory: Path, *, own: bool, redis_url: str | None = None) -> Settings:
    """Two budgets' worth of room. The worker has one of its own, or both share."""
    file = directory / "tokens.toml"
    file.write_text("\n".join(describe_entry(token, name, SCOPES, None) for name, token in TOKENS.items()))
    pool = {"budget_bytes": 2 * MIB, "key_prefix": f"kvshelf-test-{os.urandom(6).hex()}:", "timeout_seconds": 5}
    return load_settings(
        flags={
            "store": {"data_dir": directory / "data", "budget_bytes": 32 * MIB},
            "pool": pool | ({"redis_url": redis_url} if redis_url else {}),
            "access": {"token_file": file, "tenants": {"worker": OWN} if own else {}},
        },
        environment={},
    )


@contextmanager
def neighbours(settings: Settings) -> Iterator[Neighbours]:
    """A real service, and a client for each tenant."""
    with ExitStack() as stack:
        parts = open_service(settings, SystemClock())
        stack.callback(parts.close)
        running = stack.enter_context(live(parts))
        clients = [
            stack.enter_context(httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {token}"}))
            for token in TOKENS.values()
        ]
        both = Neighbours(*clients)
        both.register()
        yield both
        parts.blocks.check_integrity()
        parts.snapshots.check_integrity()


def hit_rates(directory: Path, *, own: bool, redis_url: str | None = None) -> tuple[HitRate, HitRate]:
    """The worker's hit rates alone, and next to the flood."""
    rates = []
    for name in ("alone", "flooded"):
        place = directory / name
        place.mkdir()
        with neighbours(settings_of(place, own=own, redis_url=redis_url)) as both:
            rates.append(both.work(both.flood) if name == "flooded" else both.work())
    return rates[0], rates[1]


def test_a_flood_leaves_the_hit_rate_of_a_tenant_with_its_own_shelf_alone(tmp_path: Path) -> None:
    alone, flooded = hit_rates(tmp_path, own=True)
    assert min(alone) > 0.5
    assert flooded == pytest.approx(alone, rel=0.01)


def test_so_it_does_where_the_pool_is_a_redis(tmp_path: Path, redis_url: str) -> None:
    alone, flooded = hit_rates(tmp_path, own=True, redis_url=redis_url)
    assert min(alone) > 0.5
    assert flooded == pytest.approx(alone, rel=0.01)


def test_the_same_flood_takes_hits_from_a_tenant_that_shares(tmp_path: Path) -> None:
    alone, flooded = hit_rates(tmp_path, own=False)
    assert min(alone) > 0.5
    assert flooded.global_kv < alone.global_kv * 0.9
    assert flooded.snapshots < alone.snapshots * 0.9
