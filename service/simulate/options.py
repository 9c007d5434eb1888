"""What a simulation is asked."""

from dataclasses import dataclass

from service.planner.base import Ability
from service.simulate.policy import LAST_BLOCK, SnapshotPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The shelves, and how engines use them. The defaults are those of the service, without budgets.

    Args:
        global_ttl_seconds: life of global KV after its last use.
        state_ttl_seconds: life of a snapshot after its last use.
        ssd_bytes: budget of the SSD tier; None for none.
        dram_bytes: budget of the DRAM pool; None for none.
        snapshots: which are stored.
        supersede: whether a snapshot names the one before it in its line, which goes at its first use.
        carry_forward: whether the SSD tier carries forward what is in use when it takes a segment back.
        exact_only: whether approximate plans are refused.
        supports: what the engines can do; None for the default of the profile.
    """

    global_ttl_seconds: float = 72 * 3600.0
    state_ttl_seconds: float = 300.0
    ssd_bytes: int | None = None
    dram_bytes: int | None = None
    snapshots: SnapshotPolicy = LAST_BLOCK
    supersede: bool = True
    carry_forward: bool = True
    exact_only: bool = False
    supports: frozenset[Ability] | None = None

    def __post_init__(self) -> None:
        if not (self.global_ttl_seconds > 0 and self.state_ttl_seconds > 0):
            raise ValueError("lifetimes must be above 0")
