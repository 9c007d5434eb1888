"""Certificates of an authority of our own, as files."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Pair:
    """A certificate with its chain, and its key."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates into ``directory``; ``file`` is its own."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._authority = trustme.CA()
        self._directory = directory
        self.file = directory / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *hosts: str) -> Pair:
        """A certificate for these hosts, 127.0.0.1 where none is given; over an earlier one of that name."""
        issued = self._authority.issue_cert(*(hosts or ("127.0.0.1",)))
        pair = Pair(self._directory / f"{name}.cert.pem", self._directory / f"{name}.key.pem")
        pair.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        pair.key.write_bytes(issued.private_key_pem.bytes())
        return pair
