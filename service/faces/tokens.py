"""The token in what a caller sends along."""

_SCHEME = "bearer"


def bearer_token(authorization: str | None) -> str | None:
    """The token of ``Bearer ...``; None where nothing was sent, empty where it is something else."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == _SCHEME else ""
