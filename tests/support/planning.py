"""Questions for the planner: the layouts of known models, and Hypothesis strategies for small random ones."""

from dataclasses import dataclass

from hypothesis import strategies as st

from kvshelf_client.words import Provenance
from service.planner.base import Ability, Cached, Layout, Replay, Request, Snapshot

V41 = Layout(128, 128 * 890, 20 * 128 * 528, 128, 20, Replay.BOUNDED, 128)
"""DeepSeek-V4.1-Flash, FP4: bounded replay and a decoder."""
LLAMA = Layout(128, 128 * 131_072, 0, 0, 0, Replay.NONE)
"""Llama 3 8B: full attention alone."""
QWEN_NEXT = Layout(128, 128 * 24_576, 77_266_944, 0, 36, Replay.NONE)
"""Qwen3-Next: recurrent layers, whose state cannot be replayed."""
GPT_OSS = Layout(128, 128 * 24_576, 3_145_728, 128, 12, Replay.EXACT)
"""gpt-oss-20b: windows that only an exact rebuild brings back."""
MISTRAL = Layout(128, 0, 536_870_912, 4096, 32, Replay.EXACT)
"""Mistral 7B v0.1: all layers windowed, no global bytes."""

EVERYTHING = frozenset(Ability)


@dataclass(frozen=True)
class Question:
    """One call of the planner."""

    layout: Layout
    request: Request
    cached: Cached


def engine_alone(layout: Layout, request: Request) -> int:
    """Where the engine would start from its own KV, under the same constraints."""
    cap = request.prompt_tokens - max(1, layout.decoder_window_tokens)
    usable = request.hbm_tokens if request.allow_approximate else request.hbm_exact_tokens
    if layout.state_layers == 0:
        return max(0, min(usable, cap))
    return usable if request.hbm_state and usable == request.hbm_tokens <= cap else 0


@st.composite
def layouts(draw: st.DrawFn, max_block_tokens: int = 8) -> Layout:
    """Small layouts of every kind, those without global bytes and without state included."""
    block_bytes = draw(st.just(0) | st.integers(1, 40))
    return Layout(
        block_tokens=draw(st.integers(1, max_block_tokens)),
        block_bytes=block_bytes,
        snapshot_bytes=draw(st.integers(0, 3)) * block_bytes + draw(st.sampled_from([0, 1, 50])),
        window_tokens=draw(st.integers(1, 20)),
        state_layers=draw(st.integers(0, 4)),
        replay=draw(st.sampled_from(Replay)),
        decoder_window_tokens=draw(st.just(0) | st.integers(1, 20)),
    )


@st.composite
def requests(draw: st.DrawFn, layout: Layout, max_prompt_tokens: int = 120) -> Request:
    """Requests of any engine, whatever it supports, accepts and holds; the limits are near what loads do cost."""
    prompt_tokens = draw(st.integers(1, max_prompt_tokens))
    hbm_tokens = draw(st.just(0) | st.integers(0, prompt_tokens))
    load_bytes = draw(st.integers(0, 8)) * layout.block_bytes + draw(st.sampled_from([0, layout.snapshot_bytes]))
    limits = st.integers(1, prompt_tokens).map(lambda saved_tokens: load_bytes / saved_tokens)
    return Request(
        prompt_tokens=prompt_tokens,
        allow_approximate=draw(st.booleans()),
        supports=draw(st.frozensets(st.sampled_from(Ability))),
        hbm_tokens=hbm_tokens,
        hbm_exact_tokens=draw(st.sampled_from([0, hbm_tokens]) | st.integers(0, hbm_tokens)),
        hbm_state=draw(st.booleans()),
        max_load_bytes_per_saved_token=draw(st.none() | limits),
    )


@st.composite
def caches(draw: st.DrawFn, layout: Layout, request: Request) -> Cached:
    """What may be there for a prompt, tokens past its end and past the last full block included."""
    global_tokens = draw(st.integers(0, request.prompt_tokens + layout.block_tokens))
    boundaries = range(layout.block_tokens, request.prompt_tokens + layout.block_tokens, layout.block_tokens)
    snapshots = st.builds(Snapshot, st.sampled_from(boundaries), st.sampled_from(Provenance))
    return Cached(
        global_tokens=global_tokens,
        exact_global_tokens=draw(st.sampled_from([0, global_tokens]) | st.integers(0, global_tokens)),
        snapshots=tuple(draw(st.lists(snapshots, max_size=5))),
    )


@st.composite
def questions(draw: st.DrawFn, max_prompt_tokens: int = 120) -> Question:
    """Whole questions, all of them valid."""
    layout = draw(layouts())
    request = draw(requests(layout, max_prompt_tokens))
    return Question(layout, request, draw(caches(layout, request)))
