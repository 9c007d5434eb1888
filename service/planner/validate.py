"""What a plan is asked with is checked once, here, before any rule looks at it."""

from dataclasses import replace

from service.planner.base import Cached, Layout, Request

MAX_TOKENS = 2**32 - 1
"""The longest prompt: a frame's ``end_tokens`` is a u32."""


class InvalidRequestError(ValueError):
    """A plan was asked with something that cannot be. ``field`` names what is wrong, ``problem`` says how."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem


def counted(layout: Layout, request: Request, cached: Cached) -> Cached:
    """The cache as the planner counts it, once everything is checked.

    What the engine holds counts as there, and a layout without global bytes lacks nothing.

    Raises:
        InvalidRequestError: a value is out of range, or contradicts another.
    """
    check_request(request)
    _check_cached(layout, cached)
    if not layout.block_bytes:
        everything = layout.floor_to_block(request.prompt_tokens)
        return replace(cached, global_tokens=everything, exact_global_tokens=everything)
    there = max(cached.global_tokens, layout.floor_to_block(request.hbm_tokens))
    exact = max(cached.exact_global_tokens, layout.floor_to_block(request.hbm_exact_tokens))
    if exact > there:
        raise InvalidRequestError("exact_global_tokens", f"cannot be more than global_tokens: {exact} > {there}")
    return replace(cached, global_tokens=there, exact_global_tokens=exact)


def check_request(request: Request) -> None:
    """Raises InvalidRequestError when a value of the request is out of range, or contradicts another."""
    if not 1 <= request.prompt_tokens <= MAX_TOKENS:
        raise InvalidRequestError("prompt_tokens", f"must be from 1 to {MAX_TOKENS}, got {request.prompt_tokens}")
    _check_not_negative("hbm_tokens", request.hbm_tokens)
    _check_not_negative("hbm_exact_tokens", request.hbm_exact_tokens)
    if request.hbm_tokens > request.prompt_tokens:
        raise InvalidRequestError(
            "hbm_tokens", f"cannot be more than prompt_tokens: {request.hbm_tokens} > {request.prompt_tokens}"
        )
    if request.hbm_exact_tokens > request.hbm_tokens:
        raise InvalidRequestError(
            "hbm_exact_tokens", f"cannot be more than hbm_tokens: {request.hbm_exact_tokens} > {request.hbm_tokens}"
        )
    limit = request.max_load_bytes_per_saved_token
    if limit is not None and not limit >= 0:  # NaN is not >= 0 either.
        raise InvalidRequestError("max_load_bytes_per_saved_token", f"must be 0 or more, got {limit}")


def _check_cached(layout: Layout, cached: Cached) -> None:
    _check_not_negative("global_tokens", cached.global_tokens)
    _check_not_negative("exact_global_tokens", cached.exact_global_tokens)
    for snapshot in cached.snapshots:
        boundary = snapshot.boundary_tokens
        if boundary <= 0 or boundary % layout.block_tokens:
            raise InvalidRequestError(
                "snapshots", f"must be at positive multiples of {layout.block_tokens} tokens, got {boundary}"
            )


def _check_not_negative(field: str, tokens: int) -> None:
    if tokens < 0:
        raise InvalidRequestError(field, f"must be 0 or more, got {tokens}")
