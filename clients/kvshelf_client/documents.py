"""Checked access to the JSON objects the service answers with."""

import json
from collections.abc import Iterator

from kvshelf_client.errors import AnswerError
from kvshelf_client.words import MissReason

_MOST = 1e300


class Document:
    """A JSON object with typed access. ``path`` is where in the answer it stands, for the errors."""

    def __init__(self, fields: object, path: str = "answer") -> None:
        if not isinstance(fields, dict):
            raise AnswerError(f"{path} is no JSON object")
        self._fields: dict[str, object] = fields
        self._path = path

    @classmethod
    def parse(cls, body: bytes | bytearray, path: str = "answer") -> "Document":
        """Decode a body; raises AnswerError when it is no JSON object."""
        try:
            return cls(json.loads(body), path)
        except (ValueError, RecursionError) as error:
            raise AnswerError(f"{path} is no JSON: {error}") from None

    @property
    def fields(self) -> dict[str, object]:
        """The object itself."""
        return self._fields

    def _wrong(self, name: str, wanted: str) -> AnswerError:
        state = "is missing" if name not in self._fields else f"is no {wanted}"
        return AnswerError(f"{self._path}.{name} {state}")

    def integer(self, name: str) -> int:
        """A whole number."""
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "integer")
        return value

    def integer_pair(self, name: str) -> tuple[int, int]:
        """A list of two whole numbers."""
        match self._fields.get(name):
            case [int(first), int(second)]:
                return first, second
        raise self._wrong(name, "pair of integers")

    def number(self, name: str) -> float:
        """A number that is neither infinite nor none."""
        value = self._fields.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not -_MOST < value < _MOST:
            raise self._wrong(name, "number")
        return float(value)

    def text(self, name: str) -> str:
        """A string."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "string")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "boolean")
        return value

    def raw(self, name: str) -> bytes:
        """Bytes written in hex."""
        try:
            return bytes.fromhex(self.text(name))
        except ValueError:
            raise self._wrong(name, "hex string") from None

    def reason(self, name: str) -> MissReason:
        """A miss reason."""
        try:
            return MissReason(self.text(name))
        except ValueError:
            raise self._wrong(name, "known miss reason") from None

    def items(self, name: str) -> list[object]:
        """A list."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "list")
        return value

    def documents(self, name: str) -> Iterator["Document"]:
        """A list of objects."""
        for index, value in enumerate(self.items(name)):
            yield Document(value, f"{self._path}.{name}[{index}]")

    def inner(self, name: str) -> "Document":
        """An object."""
        return Document(self._fields.get(name), f"{self._path}.{name}")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(name) is not None

    def counts(self, name: str) -> dict[str, int]:
        """An object of whole numbers."""
        inner = self.inner(name)
        return {key: inner.integer(key) for key in inner.fields}
