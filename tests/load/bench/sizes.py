"""How much the cases move: the whole benchmark, and one that only shows that everything works."""

from dataclasses import dataclass

MIB, GIB = 1 << 20, 1 << 30

PROFILE = "deepseek-v4.1-flash/fp4"
BLOCK_TOKENS = 128
BLOCK_BYTES = 113_920
"""128 tokens of 890 bytes: the global KV of one block."""
SNAPSHOT_BYTES = 1_351_680


@dataclass(frozen=True)
class Sizes:
    """``seconds`` is how long one figure is measured in a round."""

    seconds: float
    blocks: int
    cold_prompts: int
    prompt_tokens: int
    disk_file_bytes: int
    churn_budget_bytes: int
    budget_bytes: int
    clients: int
    crowd_seconds: float

    @property
    def prompt_bytes(self) -> int:
        """Payload bytes of one prompt's blocks."""
        return self.blocks * BLOCK_BYTES


FULL = Sizes(
    seconds=0.4,
    blocks=256,
    cold_prompts=24,
    prompt_tokens=1_000_064,
    disk_file_bytes=1 * GIB,
    churn_budget_bytes=1 * GIB,
    budget_bytes=8 * GIB,
    clients=32,
    crowd_seconds=8.0,
)
QUICK = Sizes(
    seconds=0.0,
    blocks=16,
    cold_prompts=2,
    prompt_tokens=16_384,
    disk_file_bytes=16 * MIB,
    churn_budget_bytes=48 * MIB,
    budget_bytes=512 * MIB,
    clients=4,
    crowd_seconds=0.2,
)
