"""The defaults of a plan's request: they follow from what replay the model's layout allows."""

from collections.abc import Iterable

from service.planner.base import Ability, Layout, Replay, Request


def request_for(
    layout: Layout,
    prompt_tokens: int,
    *,
    allow_approximate: bool | None = None,
    supports: Iterable[Ability] | None = None,
    hbm_tokens: int = 0,
    hbm_exact_tokens: int | None = None,
    hbm_state: bool = False,
    max_load_bytes_per_saved_token: float | None = None,
) -> Request:
    """A request with every default applied; None asks for the default.

    Where replay is bounded an engine is taken to do bounded replay and to accept it, and so what it holds is taken to
    be replayed. Elsewhere it is taken to want exact plans and to hold exact KV: an engine that accepts approximate
    plans there must say itself how much of what it holds is exact.

    Nothing is checked here; :func:`~service.planner.resume_plan` does that.
    """
    is_bounded = layout.replay is Replay.BOUNDED
    if supports is None:
        supports = {Ability.SNAPSHOT, Ability.BOUNDED_REPLAY} if is_bounded else {Ability.SNAPSHOT}
    if hbm_exact_tokens is None:
        hbm_exact_tokens = 0 if is_bounded else hbm_tokens
    return Request(
        prompt_tokens=prompt_tokens,
        allow_approximate=is_bounded if allow_approximate is None else allow_approximate,
        supports=frozenset(supports),
        hbm_tokens=hbm_tokens,
        hbm_exact_tokens=hbm_exact_tokens,
        hbm_state=hbm_state,
        max_load_bytes_per_saved_token=max_load_bytes_per_saved_token,
    )
