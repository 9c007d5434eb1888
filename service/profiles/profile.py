"""A profile: the KV layout of one model in one number format, and the sizes that follow from it."""

import hashlib
import json
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from service.planner.base import Layout, Replay
from service.profiles.errors import ProfileError
from service.profiles.geometry import MAX_WINDOW_TOKENS, GlobalRows, Name, Part, State, WindowRows

MAX_COMPONENTS = 64
MAX_TEXT_CHARACTERS = 2_000
MAX_BYTES_PER_TOKEN = 1 << 30
MAX_SNAPSHOT_BYTES = 1 << 42
MAX_BOUNDARY_MULTIPLE_TOKENS = 1 << 16
MAX_MINIATURE_BYTES_PER_TOKEN = 1 << 16

Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)]
_COMPONENTS = Meta(max_length=MAX_COMPONENTS)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/@-]{0,127}", re.ASCII)
_DIGEST_DOMAIN = b"kvshelf layout v1\n"


def exact_number(value: Fraction) -> int | float | str:
    """A fraction for JSON without loss: an integer, else a float that equals it, else a string such as ``"10/3"``."""
    if value.denominator == 1:
        return value.numerator
    nearest = float(value)
    return nearest if Fraction(nearest) == value else str(value)


@dataclass(frozen=True)
class Profile:
    """The KV layout of a model. ``geometry`` and ``note`` are for people; every size is computed from the components.

    ``replay`` says what is sound for the windows. It is ``none`` whatever was asked for where a recurrent layer or the
    lack of any window leaves nothing to replay.

    Raises:
        ProfileError: the components contradict each other or exceed a limit of this module.
    """

    DESCRIPTIVE: ClassVar[frozenset[str]] = frozenset({"id", "model", "geometry", "note"})
    """Fields that say what the layout belongs to and change no byte; no part of the digest."""

    id: Name
    model: Name = ""
    geometry: Text = ""
    note: Text = ""
    replay: Replay = Replay.EXACT
    decoder_window_tokens: Annotated[int, Meta(ge=0, le=MAX_WINDOW_TOKENS)] = 0
    global_rows: Annotated[tuple[GlobalRows, ...], _COMPONENTS] = ()
    window_rows: Annotated[tuple[WindowRows, ...], _COMPONENTS] = ()
    recurrent_state: Annotated[tuple[State, ...], _COMPONENTS] = ()
    auxiliary_state: Annotated[tuple[State, ...], _COMPONENTS] = ()

    def __post_init__(self) -> None:
        if self.recurrent_state or not self.window_rows:
            object.__setattr__(self, "replay", Replay.NONE)
        if _ID.fullmatch(self.id) is None:
            raise ProfileError(
                f"id: 1 to 128 of A-Z a-z 0-9 . _ + / @ -, the first a letter or digit; got {self.id!r:.140}"
            )
        if not (self.global_rows or self.state_layers):
            raise ProfileError("a profile needs at least one of global_rows, window_rows and recurrent_state")
        if self.auxiliary_state and not self.state_layers:
            raise ProfileError("auxiliary_state goes with window_rows or recurrent_state: without them nothing is kept")
        for field, value, limit in (
            ("global bytes per token", self.global_bytes_per_token, MAX_BYTES_PER_TOKEN),
            ("snapshot bytes", self.snapshot_bytes, MAX_SNAPSHOT_BYTES),
            ("boundary_multiple_tokens", self.boundary_multiple_tokens, MAX_BOUNDARY_MULTIPLE_TOKENS),
        ):
            if value > limit:
                raise ProfileError(f"{field} come to {value}, above the limit of {limit}")

    @cached_property
    def global_bytes_per_token(self) -> Fraction:
        """Global KV of one token in all layers and shards; exact, 0 where all layers are windowed."""
        return sum((rows.bytes_per_token for rows in self.global_rows), Fraction(0))

    @cached_property
    def state_bytes(self) -> int:
        """Windows and recurrent state of all state layers at one boundary."""
        windows = sum(rows.snapshot_bytes for rows in self.window_rows)
        return windows + sum(state.snapshot_bytes for state in self.recurrent_state)

    @cached_property
    def auxiliary_state_bytes(self) -> int:
        """What else a boundary needs."""
        return sum(state.snapshot_bytes for state in self.auxiliary_state)

    @property
    def snapshot_bytes(self) -> int:
        """A whole snapshot: state and auxiliary state."""
        return self.state_bytes + self.auxiliary_state_bytes

    @property
    def window_tokens(self) -> int:
        """The largest window; 0 without any."""
        return max((rows.window_tokens for rows in self.window_rows), default=0)

    @property
    def state_layers(self) -> int:
        """Layers with a window or a recurrent state."""
        return sum(rows.layers for rows in self.window_rows) + sum(state.layers for state in self.recurrent_state)

    @cached_property
    def boundary_multiple_tokens(self) -> int:
        """The smallest number of tokens that is a whole number of rows in every layer."""
        return lcm(*(rows.ratio.denominator for rows in self.global_rows))

    def check_block_tokens(self, block_tokens: int) -> None:
        """Refuse a block size at which a block would hold a part of a row.

        Raises:
            ProfileError: no positive multiple of :attr:`boundary_multiple_tokens`.
        """
        multiple = self.boundary_multiple_tokens
        if block_tokens < 1 or block_tokens % multiple:
            raise ProfileError(
                f"block_tokens must be a positive multiple of {multiple} for {self.id}, got {block_tokens}"
            )

    def block_bytes(self, block_tokens: int) -> int:
        """Global KV of one block of all shards together; raises as :meth:`check_block_tokens`."""
        self.check_block_tokens(block_tokens)
        size = self.global_bytes_per_token * block_tokens
        if size.denominator != 1:
            raise AssertionError(f"{self.id}: a block of {block_tokens} tokens came to {size} bytes")
        return size.numerator

    def layout(self, block_tokens: int) -> Layout:
        """What the planner needs at one block size; raises as :meth:`check_block_tokens`."""
        return Layout(
            block_tokens=block_tokens,
            block_bytes=self.block_bytes(block_tokens),
            snapshot_bytes=self.snapshot_bytes,
            window_tokens=self.window_tokens,
            state_layers=self.state_layers,
            replay=self.replay,
            decoder_window_tokens=self.decoder_window_tokens,
        )

    def facts(self) -> dict[str, int | float | str]:
        """What a person or a program asks of a profile, sizes computed; the keys of ``kvshelf profile show --json``."""
        return {
            "id": self.id,
            "model": self.model,
            "geometry": self.geometry,
            "global_bytes_per_token": exact_number(self.global_bytes_per_token),
            "state_bytes": self.state_bytes,
            "auxiliary_state_bytes": self.auxiliary_state_bytes,
            "window_tokens": self.window_tokens,
            "state_layers": self.state_layers,
            "replay": self.replay.value,
            "decoder_window_tokens": self.decoder_window_tokens,
            "boundary_multiple_tokens": self.boundary_multiple_tokens,
            "note": self.note,
        }

    def document(self) -> dict[str, Any]:
        """The profile as plain data, as :func:`~service.profiles.document.profile_from_document` takes it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        kept = {key: value for key, value in plain.items() if value not in ("", [], ())}
        return kept | {"replay": self.replay.value}

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex over all of the document that is not merely descriptive, in canonical JSON.

        Part and component names count: two layouts of equal sizes may differ in what their bytes mean.
        """
        content = {key: value for key, value in self.document().items() if key not in self.DESCRIPTIVE}
        encoded = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(_DIGEST_DOMAIN + encoded.encode("ascii")).hexdigest()

    def miniature(self, bytes_per_token: int) -> "Profile":
        """The same plans with small payloads, for load tests.

        Windows, layers, replay, decoder and boundary multiple stay. Global KV takes ``bytes_per_token`` (0 stays 0), a
        state layer one byte a window token, a recurrent layer one byte; there is no auxiliary state.

        Raises:
            ProfileError: ``bytes_per_token`` is below 1 or above ``MAX_MINIATURE_BYTES_PER_TOKEN``.
        """
        if not 1 <= bytes_per_token <= MAX_MINIATURE_BYTES_PER_TOKEN:
            raise ProfileError(f"bytes_per_token is from 1 to {MAX_MINIATURE_BYTES_PER_TOKEN}, got {bytes_per_token}")
        multiple = self.boundary_multiple_tokens
        filler = (Part("u8", (1,), "filler"),)
        rows = GlobalRows(1, (Part("u8", (multiple, bytes_per_token), "filler"),), f"1/{multiple}", "filler")
        return Profile(
            id=f"{self.id}@{bytes_per_token}B",
            model=self.model,
            geometry=f"miniature of {self.id} for load tests",
            replay=self.replay,
            decoder_window_tokens=self.decoder_window_tokens,
            global_rows=(rows,) if self.global_rows else (),
            window_rows=tuple(WindowRows(w.layers, w.window_tokens, filler, w.name) for w in self.window_rows),
            recurrent_state=tuple(State(s.layers, filler, s.name) for s in self.recurrent_state),
        )
