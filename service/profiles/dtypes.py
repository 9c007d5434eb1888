"""Number formats by name, and the bytes their elements take, block scales included."""

from difflib import get_close_matches
from math import prod
from typing import NamedTuple

from service.profiles.errors import ProfileError


class DType(NamedTuple):
    """A number format: bits an element, and for block-scaled formats ``scale_bits`` for each ``group`` elements."""

    element_bits: int
    group: int = 1
    scale_bits: int = 0


DTYPES: dict[str, DType] = {
    "f64": DType(64),
    "f32": DType(32),
    "bf16": DType(16),
    "f16": DType(16),
    "e4m3": DType(8),
    "e5m2": DType(8),
    "e8m0": DType(8),
    "e2m1": DType(4),
    "i64": DType(64),
    "i32": DType(32),
    "u32": DType(32),
    "i16": DType(16),
    "u16": DType(16),
    "i8": DType(8),
    "u8": DType(8),
    "i4": DType(4),
    "u4": DType(4),
    # OCP Microscaling 1.0: 32 elements share one E8M0 scale.
    "mxfp8": DType(8, group=32, scale_bits=8),
    "mxfp6": DType(6, group=32, scale_bits=8),
    "mxfp4": DType(4, group=32, scale_bits=8),
    # NVFP4: 16 E2M1 elements share one E4M3 scale. The scale of the whole tensor is no part of a row.
    "nvfp4": DType(4, group=16, scale_bits=8),
}
"""Every format a profile may name."""


def dtype_named(name: str) -> DType:
    """The format of a name.

    Raises:
        ProfileError: no format has this name; the text says which are close, or all of them.
    """
    if name not in DTYPES:
        close = get_close_matches(name.lower(), DTYPES, n=3, cutoff=0.5)
        raise ProfileError(f"dtype {name[:64]!r} is not known; use {' or '.join(close or DTYPES)}")
    return DTYPES[name]


def array_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of an array whose scale groups run along its last dimension.

    Raises:
        ProfileError: an unknown dtype, a last dimension that splits a scale group, or no whole number of bytes.
    """
    element_bits, group, scale_bits = dtype_named(dtype)
    if shape[-1] % group:
        raise ProfileError(f"{dtype} has one scale for {group} elements: the last dimension {shape[-1]} splits a group")
    elements = prod(shape)
    bits = elements * element_bits + elements // group * scale_bits
    if bits % 8:
        raise ProfileError(f"{elements} elements of {dtype} are {bits} bits, which is no whole number of bytes")
    return bits // 8
