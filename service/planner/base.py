"""The planner's words: what goes into a resume plan and what comes out. All ranges are half-open, in tokens.

A prompt of ``prompt_tokens`` L is cut like this (a bounded replay is shown; the other modes leave parts empty)::

    0            held                    run_start      matched                          L
    |---- hbm ----|---- ssd (loaded) ----|---- replay ----|---------- prefill ------------|
                                          ^ the engine runs [run_start, L)
    |------------- global KV is there up to matched ------|
                                                          ^ write_floor: nothing below is rewritten
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kvshelf_client.words import Provenance


class Replay(StrEnum):
    """What a model's profile allows when the state of a boundary is gone."""

    BOUNDED = "bounded"
    """Replaying one window is sound: the model was trained for it, or the operator says so. Also allows EXACT."""
    EXACT = "exact"
    """Only replaying ``state_layers * window`` tokens rebuilds the state."""
    NONE = "none"
    """The state cannot be replayed (a recurrent layer), or there is none."""


class Ability(StrEnum):
    """What an engine can do beyond loading up to a boundary and going on there."""

    SNAPSHOT = "snapshot"
    BOUNDED_REPLAY = "bounded_replay"
    EXACT_REBUILD = "exact_rebuild"


class Mode(StrEnum):
    """How a request resumes. The order is the last tie-break between plans that are equal in all else."""

    FULL_ATTENTION = "full_attention"
    RESIDENT = "resident"
    SNAPSHOT = "snapshot"
    BOUNDED_REPLAY = "bounded_replay"
    EXACT_REBUILD = "exact_rebuild"
    COLD = "cold"


class Source(StrEnum):
    """Where a prompt token came from: the ``source`` label of ``kvshelf_prompt_tokens_total``."""

    HBM = "hbm"
    DRAM = "dram"
    SSD = "ssd"
    REPLAY = "replay"
    PREFILL = "prefill"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the planner needs of a profile at one block size. Bytes are those of all shards together."""

    block_tokens: int
    block_bytes: int
    """Global KV of one block; 0 where all layers are windowed."""
    snapshot_bytes: int
    window_tokens: int
    state_layers: int
    replay: Replay
    decoder_window_tokens: int = 0

    def floor_to_block(self, tokens: int) -> int:
        """The largest boundary at or below ``tokens``."""
        return tokens - tokens % self.block_tokens


@dataclass(frozen=True, slots=True)
class Request:
    """What an engine asks, all defaults applied; :func:`~service.planner.defaults.request_for` applies them."""

    prompt_tokens: int
    allow_approximate: bool
    supports: frozenset[Ability]
    hbm_tokens: int = 0
    hbm_exact_tokens: int = 0
    hbm_state: bool = False
    max_load_bytes_per_saved_token: float | None = None


class Snapshot(NamedTuple):
    """A live snapshot on this prompt's chain, every shard of it there. Exact only if every shard is."""

    boundary_tokens: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Cached:
    """What is there for a prompt: contiguous from its start, stored or held in HBM."""

    global_tokens: int
    exact_global_tokens: int
    snapshots: tuple[Snapshot, ...] = ()


class Load(NamedTuple):
    """What a plan loads: blocks of ``[global_start, global_end)`` and the snapshot at a boundary, or None."""

    global_start: int
    global_end: int
    snapshot_boundary: int | None
    ssd_bytes: int
    dram_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes from all tiers."""
        return self.ssd_bytes + self.dram_bytes


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """The answer. See the module's picture; ``held_tokens`` is what of the engine's HBM the plan counts on."""

    mode: Mode
    exact: bool
    prompt_tokens: int
    matched_tokens: int
    run_start: int
    decoder_run_start: int
    held_tokens: int
    load: Load

    @property
    def write_floor(self) -> int:
        """Replayed rows build state only: no global KV below this is rewritten."""
        return self.matched_tokens

    @property
    def replayed_tokens(self) -> int:
        """Tokens run again although their global KV is there."""
        return self.matched_tokens - self.run_start

    @property
    def saved_tokens(self) -> int:
        """Tokens the engine need not run."""
        return self.run_start
