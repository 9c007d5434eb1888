"""The components a KV layout is made of. Bytes are always computed from them, never stored.

Each component is repeated in ``layers`` layers. Global and window components are made of **rows**, one row being what
a layer keeps for a token (or, with a compression ratio, for several tokens); recurrent and auxiliary components are
made of **state**, which has the same size whatever the length of the prompt.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from service.profiles.dtypes import array_bytes
from service.profiles.errors import ProfileError

MAX_LAYERS = 10_000
MAX_DIMENSION = 1 << 24
MAX_DIMENSIONS = 8
MAX_PARTS = 32
MAX_WINDOW_TOKENS = 1 << 22
MAX_RATIO_TERM = 1 << 16
MAX_NAME_CHARACTERS = 128

Layers = Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
Dimension = Annotated[int, Meta(ge=1, le=MAX_DIMENSION)]
Shape = Annotated[tuple[Dimension, ...], Meta(min_length=1, max_length=MAX_DIMENSIONS)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)]

_RATIO = re.compile(r"([0-9]{1,9})(?:/([0-9]{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """An array inside a row or a state: ``shape`` elements of ``dtype``; ``name`` says what it is."""

    dtype: Name
    shape: Shape
    name: Name = ""

    def __post_init__(self) -> None:
        array_bytes(self.dtype, self.shape)

    @property
    def bytes(self) -> int:
        """The part's size."""
        return array_bytes(self.dtype, self.shape)


Parts = Annotated[tuple[Part, ...], Meta(min_length=1, max_length=MAX_PARTS)]


def parse_ratio(value: int | str) -> Fraction:
    """Rows per token, written ``1``, ``"1/4"`` or ``"3/2"``, as an exact fraction.

    Raises:
        ProfileError: not written like that, zero, or a term above ``MAX_RATIO_TERM``.
    """
    match = _RATIO.fullmatch(str(value))
    if match is None:
        raise ProfileError(f'rows_per_token is a whole number or a fraction in quotes such as "1/4", got {value!r:.40}')
    terms = int(match[1]), int(match[2] or 1)
    if not all(1 <= term <= MAX_RATIO_TERM for term in terms):
        raise ProfileError(f"rows_per_token: both terms are from 1 to {MAX_RATIO_TERM}, got {value!r:.40}")
    return Fraction(*terms)


@dataclass(frozen=True, slots=True)
class GlobalRows:
    """Rows kept for every token of the prompt. A layer that compresses keeps ``rows_per_token`` below 1."""

    layers: Layers
    row: Parts
    rows_per_token: int | str = 1
    name: Name = ""

    def __post_init__(self) -> None:
        ratio = parse_ratio(self.rows_per_token)
        canonical = ratio.numerator if ratio.denominator == 1 else str(ratio)
        object.__setattr__(self, "rows_per_token", canonical)

    @property
    def ratio(self) -> Fraction:
        """Rows a layer keeps for a token."""
        return parse_ratio(self.rows_per_token)

    @property
    def row_bytes(self) -> int:
        """One row of one layer."""
        return sum(part.bytes for part in self.row)

    @property
    def bytes_per_token(self) -> Fraction:
        """All layers of the component, for one token."""
        return self.layers * self.row_bytes * self.ratio


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows of a sliding window: at a boundary the last ``window_tokens`` of them are needed, one a token."""

    layers: Layers
    window_tokens: Annotated[int, Meta(ge=1, le=MAX_WINDOW_TOKENS)]
    row: Parts
    name: Name = ""

    @property
    def row_bytes(self) -> int:
        """One row of one layer."""
        return sum(part.bytes for part in self.row)

    @property
    def snapshot_bytes(self) -> int:
        """All layers of the component at one boundary."""
        return self.layers * self.window_tokens * self.row_bytes


@dataclass(frozen=True, slots=True)
class State:
    """State of constant size: of a recurrent layer, or what else a boundary needs (compressor overlap)."""

    layers: Layers
    state: Parts
    name: Name = ""

    @property
    def layer_bytes(self) -> int:
        """The state of one layer."""
        return sum(part.bytes for part in self.state)

    @property
    def snapshot_bytes(self) -> int:
        """All layers of the component at one boundary."""
        return self.layers * self.layer_bytes
