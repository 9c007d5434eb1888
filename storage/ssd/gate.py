"""A gate that lets operations in while the tier is open, and closes behind the last of them."""

import threading
from types import TracebackType


class Gate:
    """Counts the operations inside. Thread-safe.

    Args:
        name: of what is open, for the error's message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._inside = 0
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing gets in any more."""
        return self._is_closed

    def __enter__(self) -> None:
        """Go in. Raises ValueError when the gate is closed."""
        with self._changed:
            if self._is_closed:
                raise ValueError(f"the {self._name} tier is closed")
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._inside -= 1
            if self._is_closed and not self._inside:
                self._changed.notify_all()

    def close(self) -> bool:
        """Let nobody in any more and wait until all are out; False when it was closed before."""
        with self._changed:
            if self._is_closed:
                return False
            self._is_closed = True
            self._changed.wait_for(lambda: not self._inside)
            return True
