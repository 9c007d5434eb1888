"""Many threads, or tasks, on one client: each has its own answers, nobody hangs, and nothing is left behind."""

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from kvshelf_client import AsyncClient, Client
from tests.support.client import Buffers
from tests.support.prompts import Prompts
from tests.support.served import Served

THREADS, REQUESTS_A_THREAD = 64, 6
TASKS = 1000
BUDGET_SECONDS = 60.0
"""Ample: here nobody is to be late."""


def held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_sixty_four_threads_on_one_client(served: Served, prompts: Prompts) -> None:
    before = held()
    with Client(served.url, budget_seconds=BUDGET_SECONDS, max_connections=16) as client:

        def serve(number: int) -> bool:
            plan = client.plan(prompts.namespace, tokens=prompts.tokens(number % prompts.count))
            buffers = Buffers(prompts.namespace)
            loaded = client.fetch_into(plan, buffers)
            heard = client.release(plan, loaded.resume)
            return heard and prompts.is_whole(number % prompts.count, plan, loaded, buffers.of)

        with ThreadPoolExecutor(THREADS) as threads:
            assert all(threads.map(serve, range(THREADS * REQUESTS_A_THREAD)))
        assert set(client.counters()["plan"]) == {"ok"}
    assert held() == before


def test_a_thousand_tasks_on_one_client(served: Served, prompts: Prompts) -> None:
    before = held()

    async def serve(client: AsyncClient, number: int) -> bool:
        plan = await client.plan(prompts.namespace, tokens=prompts.tokens(number % prompts.count))
        buffers = Buffers(prompts.namespace)
        loaded = await client.fetch_into(plan, buffers)
        heard = await client.release(plan, loaded.resume)
        return heard and prompts.is_whole(number % prompts.count, plan, loaded, buffers.of)

    async def main() -> None:
        async with AsyncClient(served.url, budget_seconds=BUDGET_SECONDS, max_connections=32) as client:
            assert all(await asyncio.gather(*(serve(client, number) for number in range(TASKS))))
            assert client.counters()["record"] == {"hit": TASKS * (prompts.blocks + 1)}

    asyncio.run(main())
    assert held() == before


def test_tasks_that_are_cancelled_leave_the_others_their_answers(served: Served, prompts: Prompts) -> None:
    """Half of the tasks are cancelled wherever they are; no buffer of theirs is written to after that."""
    before = held()

    async def fetch(client: AsyncClient, number: int, buffers: Buffers) -> bool:
        plan = await client.plan(prompts.namespace, tokens=prompts.tokens(number % prompts.count))
        loaded = await client.fetch_into(plan, buffers)
        return prompts.is_whole(number % prompts.count, plan, loaded, buffers.of)

    async def main() -> None:
        async with AsyncClient(served.url, budget_seconds=BUDGET_SECONDS, max_connections=8) as client:
            all_buffers = [Buffers(prompts.namespace) for _ in range(200)]
            tasks = [asyncio.create_task(fetch(client, number, each)) for number, each in enumerate(all_buffers)]
            stopped: dict[int, bytes] = {}
            for number in range(0, 200, 2):
                await asyncio.sleep(0.001 if number % 3 else 0)
                tasks[number].cancel()
                await asyncio.wait([tasks[number]])
                stopped[number] = b"".join(all_buffers[number].of.values())
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(results[number] is True for number in range(1, 200, 2))
            assert any(isinstance(result, asyncio.CancelledError) for result in results)
            for number, there in stopped.items():
                assert b"".join(all_buffers[number].of.values()) == there
            assert all(await asyncio.gather(*(fetch(client, n, Buffers(prompts.namespace)) for n in range(50))))

    asyncio.run(main())
    assert held() == before


def test_the_event_loop_goes_on_during_a_long_fetch(served: Served) -> None:
    """While many megabytes come in as fast as they can, another task has its turn again and again."""
    large = Prompts(served.url, count=1, blocks=3000, salt="large")

    async def main() -> tuple[int, bool]:
        async with AsyncClient(served.url, budget_seconds=BUDGET_SECONDS) as client:
            plan = await client.plan(large.namespace, tokens=large.tokens(0))
            turns, is_done = 0, False

            async def count() -> None:
                nonlocal turns
                while not is_done:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            buffers = Buffers(large.namespace)
            loaded = await client.fetch_into(plan, buffers)
            is_done = True
            await counting
            await client.release(plan, loaded.resume)
            return turns, large.is_whole(0, plan, loaded, buffers.of)

    turns, is_whole = asyncio.run(main())
    assert is_whole
    assert turns > 3000 * 4736 // (2 << 20)
