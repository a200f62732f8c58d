"""Answer times of the dashboard: filters on many runs, and the questions of *What if*.

    python benchmarks/dashboard.py [--runs 10000] [--repeats 50] [--processor]

A home is filled with synthetic runs that differ in status, stack and loss. Each request goes through the whole
application, without the network. A filter is timed twice: as a reader sees it, where folders are looked at once a
second at most, and with a look at all folders in every request. *What if* is asked for another batch size each time, so
no answer is a remembered one. An answer has memory, time and the fit on the device that was asked for. All other
devices are a second request, as the page makes it. With `--processor` the time is that of the processor, for a machine
that others use meanwhile.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median

from starlette.applications import Starlette
from starlette.testclient import TestClient

from assay.config import Home, Run, load
from assay.config.loading import presets
from assay.config.run import Spec
from assay.dashboard import collect_rarely
from assay.dashboard.app import build_app
from assay.optimizations import resolve_run
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.index import Store, entry_of
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder, RunSpec

FILTERS = (
    "",
    "&q=0042",
    "&q=demo+bf16",
    "&status=failed",
    "&optimization=sdpa_attention&sort=val+loss&order=up",
    "&q=demo&page=40",
)
_LARGE = ("demo", "gpt2-124m", "gpt2-1558m")
QUESTIONS = (
    *((name, "bf16_mixed+sdpa_attention", device) for device in ("here", "a100") for name in _LARGE),
    *((name, "", "here") for name in presets()),
)
"""Presets, stacks and devices of *What if*."""
Measured = Callable[[Callable[[int], None]], tuple[float, float]]
_STACKS = ((), ("sdpa_attention",), ("bf16_mixed",), ("sdpa_attention", "bf16_mixed"))
_STATUSES = (Status.DONE, Status.DONE, Status.DONE, Status.FAILED, Status.OUT_OF_MEMORY)
_SPACE = 1 << 20


def filled(home: Home, count: int) -> None:
    """Write so many runs, and index them."""
    home.ready()
    base = load("demo").with_vocabulary()
    stacks = [tuple(Spec(name=name) for name in names) for names in _STACKS]
    templates = [_result(base.model_copy(update={"optimizations": stack})) for stack in stacks]
    entries = []
    for number in range(count):
        result = templates[number % len(templates)]
        run = f"20261124-{number % 240000:06d}-{result.identity[:6]}-{number % _SPACE:05x}"
        status = _STATUSES[number % len(_STATUSES)]
        changes = {"run": run, "status": status, "val_loss": 4.0 - number / count, "steps": number}
        folder = RunFolder(home.runs / run)
        folder.path.mkdir()
        result = result.model_copy(update=changes)
        folder.write_result(result)
        entries.append(entry_of(result, folder.stamp()))
    Store(home).put(entries)


def _result(run: Run) -> RunResult:
    identity, created = "0123456789ab", "2026-11-24"
    spec = RunSpec(
        id="none", created=created, identity=identity, preset="demo", config=resolve_run(run), data_folder=""
    )
    return begun_result(spec).model_copy(update={"tokens_per_second": 31200.0})


def timed(ask: Callable[[int], None], repeats: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the median and the largest milliseconds of so many requests, after one that is not counted."""
    ask(-1)
    spent = []
    for number in range(repeats):
        before = clock()
        ask(number)
        spent.append(1000 * (clock() - before))
    return median(spent), max(spent)


def shown(name: str, times: tuple[float, float]) -> None:
    """Print a line of the table."""
    print(f"  {name:64} median {times[0]:6.1f} ms   largest {times[1]:6.1f} ms")


def filters(app: Starlette, given: argparse.Namespace, measured: Measured) -> None:
    """Time filters of the table of runs."""
    browser = TestClient(app, base_url="http://127.0.0.1")

    def ask(path: str) -> None:
        assert browser.get(path).status_code == 200, path

    for interval, words in ((1.0, "as a reader sees it"), (0.0, "with a look at all folders each time")):
        app.state.memory.watch.interval = interval
        print(f"filters on {given.runs} runs, {words}")
        for one in FILTERS:
            shown(one or "all runs", measured(lambda number, one=one: ask(f"/runs?part=table{one}")))


def what_if(app: Starlette, measured: Measured) -> None:
    """Time answers, and the devices on which a step fits."""
    browser = TestClient(app, base_url="http://127.0.0.1")

    def answered(query: str) -> None:
        assert browser.get(f"/what-if/answer?{query}").json()["memory"], query

    def fitted(query: str) -> None:
        assert "<table" in browser.get(f"/what-if/fit?{query}").json()["html"], query

    def both(query: str) -> None:
        answered(query)
        fitted(query)

    print("what if, another batch size each time")
    for model, stack, device in QUESTIONS:
        query = f"preset={model}&with={stack.replace('+', '%2B')}&device={device}&batch={{}}"
        for words, ask, first in (("answer", answered, 2), ("and all devices", both, 1002)):
            times = measured(lambda number, ask=ask, query=query, first=first: ask(query.format(number + first)))
            shown(f"{model} {stack} {device}, {words}", times)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--processor", action="store_true")
    given = parser.parse_args()
    clock = time.process_time if given.processor else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        filled(home, given.runs)
        app = build_app(home.root)
        collect_rarely()  # as the server does
        filters(app, given, lambda ask: timed(ask, given.repeats, clock))
        what_if(app, lambda ask: timed(ask, given.repeats, clock))


if __name__ == "__main__":
    main()
