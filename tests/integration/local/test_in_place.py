"""Blocks used where they are: good while the lease lives, and known not to be when it did not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvshelf_client.errors import ServiceError, UnreachableError
from kvshelf_client.frames import FrameKind
from kvshelf_client.local.inplace import LeaseLostError, LocalReader
from kvshelf_client.words import MissReason, RecordClass
from service.leases.lease import RanPlan
from service.shelf.finishing import finish
from storage.clock import ManualClock
from storage.ssd.format import HEADER_BYTES
from tests.integration.local.conftest import open_files, segments
from tests.integration.ssd.test_damage import flip
from tests.support.live import Live, live
from tests.support.local import local_parts
from tests.support.page_cache import bring_in
from tests.support.service import register
from tests.support.shelf import BLOCK, KEYS, fill, payload_of, plan

BLOCKS = RecordClass.BLOCK


@pytest.fixture
def reader(service: Live) -> Iterator[LocalReader]:
    made = LocalReader(service.url)
    yield made
    made.close()


def leased(service: Live, blocks: int = 6, **options: object) -> str:
    """A lease of so many blocks, which are stored where they are not, and in the page cache."""
    namespace = register(service.parts)
    fill(service.parts, namespace, BLOCKS, range(blocks))
    bring_in(segments(service))
    return plan(service.parts, namespace, blocks * BLOCK + 200, **options).lease.lease_id  # type: ignore[arg-type]


def test_blocks_are_where_they_are(service: Live, reader: LocalReader) -> None:
    lease_id = leased(service)
    for _ in range(3):
        with reader.view(lease_id, budget_seconds=20) as view:
            assert [bytes(block.payload) for block in view.blocks] == [
                bytes(payload_of(BLOCKS, number, 0, 128)) for number in range(6)
            ]
            assert all(block.is_mapped and block.payload.readonly for block in view.blocks)
            assert (view.missing, view.frames, view.fell_back) == (None, [], False)
    with pytest.raises(ValueError, match="released"):
        bytes(view.blocks[0].payload)


def test_a_snapshot_comes_along(service: Live, reader: LocalReader) -> None:
    namespace = register(service.parts)
    fill(service.parts, namespace, BLOCKS, range(8))
    fill(service.parts, namespace, RecordClass.SNAPSHOT, [6])
    lease = plan(service.parts, namespace, 8 * BLOCK + 200, allow_approximate=False).lease
    with reader.view(lease.lease_id, budget_seconds=20) as view:
        assert [frame.header.kind for frame in view.frames] == [FrameKind.SNAPSHOT]
        assert len(view.blocks) == 7
    with reader.view(lease.lease_id, fallback=True, budget_seconds=20) as view:
        assert [frame.header.kind for frame in view.frames] == [FrameKind.FALLBACK]
        assert view.fell_back


def test_a_lease_that_ends_while_it_is_used_is_told_at_the_end(service: Live, reader: LocalReader) -> None:
    lease_id = leased(service)
    with pytest.raises(LeaseLostError), reader.view(lease_id, budget_seconds=20):
        finish(service.parts, None, lease_id, RanPlan.PLAN)
    with pytest.raises(ServiceError) as unknown, reader.view(lease_id, budget_seconds=20):
        pass
    assert unknown.value.status == 404


def test_a_record_that_is_erased_while_it_is_used_is_told_at_the_end(service: Live, reader: LocalReader) -> None:
    """An erased record is written over even where a lease holds it."""
    lease_id = leased(service)
    namespace = register(service.parts)
    with pytest.raises(LeaseLostError, match=r"block 2 .* was erased"), reader.view(lease_id, budget_seconds=20):
        assert service.parts.blocks.erase([namespace.record_id(KEYS[2], 0)]) == 1


def test_a_damaged_block_ends_the_view(service: Live, reader: LocalReader) -> None:
    lease_id = leased(service)
    flip(min(segments(service).glob("*.seg")), 3 * 4096 + HEADER_BYTES + 9)
    with reader.view(lease_id, budget_seconds=20) as view:
        assert len(view.blocks) == 3
        assert view.missing is MissReason.CORRUPT


def test_what_is_made_of_a_block_outlives_the_view(service: Live, reader: LocalReader) -> None:
    lease_id = leased(service)
    with reader.view(lease_id, budget_seconds=20) as view:
        kept = memoryview(view.blocks[0].payload)
    reader.close()
    assert bytes(kept) == payload_of(BLOCKS, 0, 0, 128)


def test_nothing_is_left_open(service: Live, reader: LocalReader) -> None:
    lease_id = leased(service)
    with reader.view(lease_id, budget_seconds=20):
        before = len(open_files())
    for _ in range(20):
        with reader.view(lease_id, budget_seconds=20):
            pass
        with pytest.raises(LeaseLostError), reader.view(leased(service), budget_seconds=20):
            service.parts.leases.release_all()
        lease_id = leased(service)
    assert len(open_files()) <= before + 2


def test_without_a_local_path(tmp_path: Path) -> None:
    parts = local_parts(tmp_path, ManualClock())
    with live(parts) as running:
        reader = LocalReader(running.url)
        with pytest.raises((ServiceError, UnreachableError)), reader.view("any", budget_seconds=20):
            pass
        reader.close()
    parts.close()
