"""Bounds on what a caller may send."""

from pydantic import Field

from service.settings.base import GIB, KIB, MIB, Group


class LimitSettings(Group):
    """Bounds on what a caller may send."""

    max_prompt_tokens: int = Field(4_194_304, ge=1, description="Longest prompt of a plan, in tokens.")
    max_snapshot_bytes: int = Field(
        1 * GIB, ge=1, description="Largest snapshot a namespace may have, one shard of it."
    )
    max_store_records: int = Field(65_536, ge=1, description="Most frames in one store.")
    max_list_items: int = Field(65_536, ge=1, description="Most keys in one touch or delete, tokens in one self-test.")
    max_json_bytes: int = Field(8 * MIB, ge=1 * KIB, description="Largest JSON body.")
    max_namespaces: int = Field(10_000, ge=1, description="Most namespaces of one tenant; of all, without tokens.")
