"""The head of an HTTP/1.1 response, read strictly. Pure."""

from typing import NamedTuple

from kvshelf_client.errors import AnswerError

MAX_HEAD_BYTES = 16 << 10
END = b"\r\n\r\n"
_NO_BODY = (204, 304)


class Head(NamedTuple):
    """What of a response's head matters.

    ``length_bytes`` is that of the body, None when it was not said. ``is_last`` means that nothing more may be sent on
    this connection.
    """

    status: int
    length_bytes: int | None
    is_last: bool
    retry_after_seconds: float | None


def parse_head(head: bytes) -> Head:
    """Parse a head, up to and without its empty line.

    Raises:
        AnswerError: it is no head of HTTP/1.1, or contradicts itself.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not _is_number(status) or rest[3:4].strip() or status < "200":
        raise AnswerError(f"an answer begins with {first[:40]!r}, which is no HTTP/1.1")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or not name or name != name.strip():
            raise AnswerError(f"{line[:40]!r} is no field of a head")
        if name == "content-length" and fields.get(name, value) != value:
            raise AnswerError("an answer has two lengths")
        fields[name] = value
    return Head(
        int(status),
        0 if int(status) in _NO_BODY else _length(fields),
        version == "HTTP/1.0" or "close" in fields.get("connection", "").lower(),
        _seconds(fields.get("retry-after", "")),
    )


def _length(fields: dict[str, str]) -> int | None:
    if "transfer-encoding" in fields:
        raise AnswerError("an answer of unknown length: transfer-encoding is not understood here")
    text = fields.get("content-length")
    if text is None:
        return None
    if not _is_number(text) or len(text) > 18:
        raise AnswerError(f"{text[:40]!r} is no length")
    return int(text)


def _seconds(text: str) -> float | None:
    """The seconds of a Retry-After; its other form, a date, is not used by this API."""
    return float(text) if _is_number(text) and len(text) < 10 else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
