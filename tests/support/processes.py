"""What a served process has at the moment."""

from pathlib import Path

from tests.support.served import Served

_PAGE_BYTES = 4096


def descriptors(served: Served) -> int:
    """Open file descriptors."""
    return len(list(Path(f"/proc/{served.server.process.pid}/fd").iterdir()))


def resident_bytes(served: Served) -> int:
    """Resident memory."""
    pages = Path(f"/proc/{served.server.process.pid}/statm").read_text().split()[1]
    return int(pages) * _PAGE_BYTES
