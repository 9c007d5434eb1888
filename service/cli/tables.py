"""Plain text tables for a person."""

from collections.abc import Sequence

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, all others to the right, two spaces between them."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def share(part: float, whole: float) -> str:
    """A share as a percentage; a dash of nothing."""
    return f"{part / whole:.1%}" if whole else "-"


def size(count: float) -> str:
    """Bytes in decimal units: ``890 B``, ``1.35 MB``."""
    power = 0
    while count >= 1000 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.3g} {_UNITS[power]}" if power else f"{count:.0f} B"


def milliseconds(seconds: float) -> str:
    """A latency in milliseconds."""
    return f"{seconds * 1000:.2f}"
