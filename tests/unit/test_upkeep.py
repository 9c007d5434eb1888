"""Upkeep tells of a change of health once, and a start with too small a budget costs nothing."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance
from service.access import ANYBODY
from service.namespaces import NamespaceSpec
from service.planner import request_for
from service.profiles import get_profile
from service.settings import Settings, load_settings
from service.shelf.assemble import open_service
from service.shelf.condition import Health
from service.shelf.planning import Ask, make_plan
from service.shelf.storing import Upload, store
from service.shelf.upkeep import tell_of_change
from storage.catalog import CatalogError
from storage.clock import ManualClock
from tests.support.service import make_parts, register

DOWN = Health("degraded", ("the DRAM pool does not serve",))
OK = Health("ok", ())


def test_each_change_of_health_is_one_line() -> None:
    with capture_logs() as lines:
        state = OK
        for now in (OK, DOWN, DOWN, OK, OK):
            state = tell_of_change(state, now)
    assert [(line["log_level"], line["status"], line["causes"]) for line in lines] == [
        ("warning", "degraded", list(DOWN.causes)),
        ("info", "ok", []),
    ]


def settings_of(directory: Path, budget_bytes: int) -> Settings:
    return load_settings(flags={"store": {"data_dir": directory, "budget_bytes": budget_bytes}}, environment={})


def test_a_refused_start_leaves_the_records_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    parts = open_service(settings_of(tmp_path, 256 << 20), clock)
    spec = NamespaceSpec("t", "m", "1", get_profile("llama-3-8b/bf16").miniature(12_288))
    namespace, _ = parts.namespaces.register(ANYBODY, "big", spec)
    payload = bytes(namespace.shard_block_bytes)
    keys = namespace.keys_from_tokens(bytes(4 * 128 * 30))
    frames = [
        (
            FrameHeader(FrameKind.BLOCK, key, len(payload), checksum_of(payload), Provenance.EXACT, 0, (at + 1) * 128),
            payload,
        )
        for at, key in enumerate(keys)
    ]
    assert {outcome.outcome for outcome in store(parts, Upload(namespace), frames)} == {"stored"}
    before = parts.blocks.usage()
    parts.close()
    with pytest.raises(CatalogError, match=r"big.*larger than a segment takes"):
        open_service(settings_of(tmp_path, 16 << 20), clock)
    again = open_service(settings_of(tmp_path, 256 << 20), clock)
    assert again.blocks.usage()[:3] == before[:3]
    again.close()


def test_exact_hits_of_a_profile_without_global_bytes_are_its_snapshots(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, ManualClock())
    namespace = register(parts, profile="mistral-7b-v0.1/bf16")
    keys = namespace.keys_from_tokens(bytes(4 * 1000))
    ask = Ask(namespace, request_for(namespace.layout, 1000), keys, "r", 60.0)
    planned = make_plan(parts, ask)
    assert (planned.lease.hit_tokens, planned.exact_hit_tokens) == (0, 0)
    payload = bytes(namespace.shard_snapshot_bytes)
    header = FrameHeader(FrameKind.SNAPSHOT, keys[5], len(payload), checksum_of(payload), Provenance.EXACT, 0, 768)
    assert store(parts, Upload(namespace), [(header, payload)])[0].outcome == "stored"
    planned = make_plan(parts, ask)
    assert (planned.lease.hit_tokens, planned.exact_hit_tokens) == (768, 768)
    parts.close()
