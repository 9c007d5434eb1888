"""What ends a replay. A record that is merely missing does not."""


class ReplayError(Exception):
    """The service broke its contract, so that the replay cannot go on."""


class WrongBytesError(ReplayError):
    """The service handed out bytes that were never stored under this record. Nothing is worse in a cache."""
