"""What the tiers' ``check_integrity`` is made of."""


def expect_equal(what: str, there: object, accounted: object) -> None:
    """Compare what is there with what the accounts say.

    Raises:
        AssertionError: they differ; the message names both.
    """
    if there != accounted:
        raise AssertionError(f"{what}: {there!r} there, {accounted!r} accounted")


def expect(condition: bool, message: str) -> None:
    """Raises AssertionError with ``message`` unless ``condition`` holds; also under ``python -O``."""
    if not condition:
        raise AssertionError(message)
