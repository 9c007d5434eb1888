"""What may be wrong with a Redis, told apart as an operator must tell it apart."""

from enum import StrEnum


class Ailment(StrEnum):
    """What is wrong, as the last conversation saw it. The values are kinds of faults in the metrics."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    DENIED = "denied"
    REFUSED = "refused"
    FULL = "full"

    @property
    def words(self) -> str:
        """It, for an operator."""
        return _WORDS[self]


_WORDS = {
    Ailment.UNREACHABLE: "Redis cannot be reached: nobody answers there, or connections are cut",
    Ailment.TIMEOUT: "Redis does not answer in time",
    Ailment.DENIED: "Redis does not let us in: the password is wrong, or a right is missing",
    Ailment.REFUSED: "Redis refuses commands: it is loading, read-only, or something else than a Redis",
    Ailment.FULL: "Redis is full and evicts nothing: what is there is served, new snapshots are refused",
}
