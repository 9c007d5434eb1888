"""Logic in steps, run by a thread or by an event loop: what both kinds of client do is written once.

A generator yields what is to be done, is sent what came of it, and may be thrown what went wrong.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Step = TypeVar("Step")
T = TypeVar("T")


def run(steps: Generator[Step, Any, T], do: Callable[[Step], Any]) -> T:
    """Run steps in this thread, each with ``do``. An interrupt goes through them, so that they clean up."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = do(step)
            except BaseException as error:  # noqa: BLE001 - The steps are told, whatever it is, and let it through.
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(steps: Generator[Step, Any, T], do: Callable[[Step], Awaitable[Any]]) -> T:
    """The same on an event loop. A cancellation goes through the steps too."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = await do(step)
            except BaseException as error:  # noqa: BLE001 - The steps are told, whatever it is, and let it through.
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
