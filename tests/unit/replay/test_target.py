"""The namespace a replay registers."""

import re
from dataclasses import replace

from service.replay.target import Target
from service.traces.base import Trace

_TRACE = Trace("agents", "sessions", 64, (), 0, 0)
_TARGET = Target("llama-3-8b/bf16", 1, "salt")


def test_the_spec_has_the_traces_blocks_and_a_scheme_of_its_own() -> None:
    spec = _TARGET.spec_for(_TRACE)
    assert (spec.block_tokens, spec.bytes_per_token, spec.salt, spec.shards) == (64, 1, "salt", 1)
    assert (spec.profile, spec.model) == ("llama-3-8b/bf16", "llama-3-8b/bf16")
    assert spec.hash_scheme == "kvshelf-trace-v1"
    assert spec.hash_block_tokens is None
    own = replace(_TARGET, profile={"id": "mine", "global_rows": []}, bytes_per_token=None)
    assert (own.spec_for(_TRACE).model, own.spec_for(_TRACE).bytes_per_token) == ("mine", None)


def test_every_setting_makes_another_name() -> None:
    targets = [
        _TARGET,
        replace(_TARGET, profile="qwen3-8b/bf16"),
        replace(_TARGET, bytes_per_token=None),
        replace(_TARGET, salt=""),
        replace(_TARGET, shards=2),
    ]
    names = {target.name_for(_TRACE) for target in targets}
    names |= {_TARGET.name_for(replace(_TRACE, name="other")), _TARGET.name_for(replace(_TRACE, block_tokens=128))}
    assert len(names) == 7
    assert _TARGET.name_for(_TRACE) == Target("llama-3-8b/bf16", 1, "salt").name_for(_TRACE)


def test_any_file_name_makes_a_name_the_service_takes() -> None:
    for name in ("ä trace/with: all", "x" * 300, "", "..."):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", _TARGET.name_for(replace(_TRACE, name=name)))
