"""Two hundred readers of growing logs over sockets: each has every step once, also after it lost its connection."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from assay import dashboard
from assay.config import Home
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.processes import this_process
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.records import made, say, step

READERS, RUNS, STEPS = 200, 4, 50
LONGEST_SECONDS = 60


def living(home: Home, ready: ReadyRun) -> RunFolder:
    """A run of one step that this process seems to train."""
    folder, here = made(home, ready), this_process(os.getpid())
    assert here is not None
    folder.write_process(here)
    say(folder, step(0))
    return folder


async def messages(answer: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    """Yield the fields of each message of a stream."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            yield fields
            fields = {}


async def read(browser: httpx2.AsyncClient, path: str, first: asyncio.Semaphore, *, returns: bool) -> list[int]:
    """Read a stream to its end; who `returns` hangs up after each message with steps, and goes on from its id."""
    found: list[int] = []
    offset, over = "", False
    while not over:
        async with browser.stream("GET", path, headers={"last-event-id": offset}) as answer:
            async for one in messages(answer):
                over = one.get("event") == "over"
                batches = json.loads(one["data"]) if "id" in one else []
                news = [point[0] for batch in batches for point in batch["steps"]]
                if news and not found:
                    first.release()
                found += news
                offset = one.get("id", offset)
                if over or (news and returns):
                    break
    return found


async def train(folders: Sequence[RunFolder], first: asyncio.Semaphore) -> None:
    """Append steps once every reader has the first one, then end the runs."""
    for _ in range(READERS):
        await first.acquire()
    for index in range(1, STEPS):
        for folder in folders:
            say(folder, step(index))
        await asyncio.sleep(0.02)
    for folder in folders:
        folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))


@pytest.mark.slow
def test_two_hundred_readers_of_growing_logs_have_every_step_once(
    home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.dashboard.stream._PAUSE_SECONDS", 0.3)
    folders = [living(home, ready_run) for _ in range(RUNS)]
    place, ready = dashboard.place("127.0.0.1", 0), threading.Event()
    threading.Thread(target=dashboard.serve, args=(home, place, ready.set), daemon=True).start()
    assert ready.wait(30)

    async def all_read() -> list[list[int]]:
        limits = httpx2.Limits(max_connections=READERS)
        async with httpx2.AsyncClient(base_url=place.link, limits=limits, timeout=60) as browser:
            first = asyncio.Semaphore(0)
            paths = [f"runs/{folders[number % RUNS].id}/events" for number in range(READERS)]
            readers = [read(browser, path, first, returns=number % 3 == 0) for number, path in enumerate(paths)]
            async with asyncio.timeout(LONGEST_SECONDS):
                _, *found = await asyncio.gather(train(folders, first), *readers)
            return found

    assert asyncio.run(all_read()) == [list(range(STEPS))] * READERS
