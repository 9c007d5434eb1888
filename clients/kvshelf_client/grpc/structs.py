"""Plain data in messages. A ``google.protobuf.Struct`` has floating numbers only; whole ones come out as such here."""

from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct


def plain(value: Any) -> Any:
    """A Struct, or any value within one, as plain data."""
    if isinstance(value, Struct):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, ListValue):
        return [plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
