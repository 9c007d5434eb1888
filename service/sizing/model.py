"""What a model's KV takes, whatever the load."""

from service.planner.base import Layout

CONTEXTS = (131_072, 1_048_576)
"""128K and 1M tokens."""


def model_document(layout: Layout) -> dict[str, object]:
    """Bytes a token and of a snapshot, of whole contexts, and what snapshots at every block would come to."""
    ratio = layout.snapshot_bytes / layout.block_bytes if layout.block_bytes and layout.snapshot_bytes else None
    return {
        "block_tokens": layout.block_tokens,
        "global_bytes_per_token": layout.block_bytes / layout.block_tokens,
        "snapshot_bytes": layout.snapshot_bytes,
        "snapshots_at_every_block_by_global": ratio,
        "context_gib": {str(tokens): context_bytes(layout, tokens) / 2**30 for tokens in CONTEXTS},
    }


def context_bytes(layout: Layout, tokens: int) -> int:
    """The global KV of a context's full blocks."""
    return tokens // layout.block_tokens * layout.block_bytes
