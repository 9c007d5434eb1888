"""Profiles as text for people: a table of several, and one with the arithmetic of its sizes."""

import textwrap
from collections.abc import Iterator, Sequence
from fractions import Fraction

from service.planner.base import Replay
from service.profiles import Profile
from service.profiles.dtypes import dtype_named
from service.profiles.geometry import Part
from service.profiles.profile import exact_number

_WIDTH = 100
_USUAL_BLOCK_TOKENS = 128
_COLUMNS = ("ID", "BYTES/TOKEN", "SNAPSHOT BYTES", "WINDOW", "STATE LAYERS", "REPLAY")
_REPLAY = {
    Replay.BOUNDED: "bounded: one window may be replayed where the state is gone",
    Replay.EXACT: "exact: only state layers x window tokens rebuild the state",
    Replay.NONE: "none",
}


def profile_table(profiles: Sequence[Profile]) -> str:
    """One profile a line under a heading; sizes to the right."""
    rows = [_COLUMNS, *(_cells(profile) for profile in profiles)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 0 < column < len(_COLUMNS) - 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def profile_text(profile: Profile) -> str:
    """One profile: what it is, and component by component how its bytes come about."""
    return "\n".join([*_heading(profile), "", *_global(profile), "", *_state(profile), "", *_planning(profile)])


def _cells(profile: Profile) -> tuple[str, ...]:
    return (
        profile.id,
        _number(profile.global_bytes_per_token),
        _number(profile.snapshot_bytes),
        _number(profile.window_tokens),
        _number(profile.state_layers),
        profile.replay.value,
    )


def _number(value: int | Fraction) -> str:
    exact = exact_number(Fraction(value))
    return exact if isinstance(exact, str) else f"{exact:,}"


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def _heading(profile: Profile) -> Iterator[str]:
    yield profile.id
    for text in (profile.model, profile.geometry, profile.note):
        yield from textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _global(profile: Profile) -> Iterator[str]:
    if not profile.global_rows:
        yield "Global KV: none, all layers are windowed or recurrent"
        return
    multiple = profile.boundary_multiple_tokens
    block_tokens = -(-_USUAL_BLOCK_TOKENS // multiple) * multiple
    yield f"Global KV: {_number(profile.global_bytes_per_token)} bytes a token"
    for rows in profile.global_rows:
        ratio = "" if rows.ratio == 1 else f" x {rows.ratio} rows a token"
        sum_of = f"{_count(rows.layers, 'layer')} x {_number(rows.row_bytes)} B a row{ratio}"
        yield f"  {rows.name or 'rows'}: {sum_of} = {_number(rows.bytes_per_token)} B"
        yield from _parts(rows.row)
    yield f"  a block of {block_tokens} tokens: {_number(profile.block_bytes(block_tokens))} bytes"


def _state(profile: Profile) -> Iterator[str]:
    if not profile.state_layers:
        yield "State at a boundary: none"
        return
    yield f"State at a boundary: {_number(profile.state_bytes)} bytes"
    for rows in profile.window_rows:
        sum_of = f"{_count(rows.layers, 'layer')} x {_count(rows.window_tokens, 'token')} x {_number(rows.row_bytes)} B"
        yield f"  {rows.name or 'window'}: {sum_of} = {_number(rows.snapshot_bytes)} B"
        yield from _parts(rows.row)
    for title, states in (("", profile.recurrent_state), ("auxiliary", profile.auxiliary_state)):
        if title and states:
            yield f"Auxiliary state at a boundary: {_number(profile.auxiliary_state_bytes)} bytes"
        for state in states:
            sum_of = f"{_count(state.layers, 'layer')} x {_number(state.layer_bytes)} B"
            yield f"  {state.name or 'state'}: {sum_of} = {_number(state.snapshot_bytes)} B"
            yield from _parts(state.state)
    yield f"A snapshot: {_number(profile.snapshot_bytes)} bytes{_compared(profile)}"


def _compared(profile: Profile) -> str:
    if not profile.global_bytes_per_token:
        return ""
    tokens = round(profile.snapshot_bytes / profile.global_bytes_per_token)
    return f", as much as the global KV of {_count(tokens, 'token')}"


def _parts(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        group = dtype_named(part.dtype).group
        scales = f", one scale for {group}" if group > 1 else ""
        shape = " x ".join(map(str, part.shape))
        yield f"      {part.name or 'part'}: {shape} {part.dtype}{scales} = {_number(part.bytes)} B"


def _planning(profile: Profile) -> Iterator[str]:
    why = " (recurrent state cannot be replayed)" if profile.recurrent_state else ""
    if profile.state_layers:
        yield f"Window: {_count(profile.window_tokens, 'token')}, {_count(profile.state_layers, 'state layer')}"
    yield f"Replay: {_REPLAY[profile.replay]}{why}"
    if profile.decoder_window_tokens:
        yield f"Decoder window: the last {_count(profile.decoder_window_tokens, 'token')} of a prompt always run"
    yield f"Blocks: a multiple of {_count(profile.boundary_multiple_tokens, 'token')}"
    yield f"Layout digest: {profile.digest}"
