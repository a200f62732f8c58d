"""For every test: one thread a process, and no measurement of the machine unless a test is about that."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Several processes test at once, and threads that wait for a core in turn spin it away.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# Each test has a home of its own, and would compile everything anew.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "assay-tests-torchinductor"))
# And none knows the rates that were measured on this machine.
os.environ["ASSAY_MACHINE"] = ""
_THREADS = int(os.environ["OMP_NUM_THREADS"])
# Whoever starts tests in the background, or with nohup, has them ignore signals that tests send to what they start.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)
# Tests make many objects and little garbage: collected less often, it takes a twentieth of their time less.
gc.set_threshold(20_000, 20, 50)
# Nobody pulls the plug on a test, and each wait for the disk takes longer than most tests. Some put their own here.
os.fsync = lambda descriptor: None
# And an example takes as long as a busy machine lets it.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

_MANY_MODULES = 50
_LONGEST = ("worker", "parallel", "optimizations", "estimator")
"""Folders with the longest files: they begin first, so that no process is left with one of them at the end."""

pytest_plugins = ["support.children", "support.corpora", "support.figures", "support.forked"]

SHARED_FILES = Path(__file__).parents[2] / "shared" / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Compile kernels without vectors in the quick suite: half a minute less, and the slow one has them."""
    if "not slow" in config.option.markexpr:
        os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, in the order of their folders."""
    places = {name: index for index, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.relative_to(Path(__file__).parent).parts[0], len(places)))


@pytest.fixture(autouse=True)
def _rates_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison first measures the machine and times steps, some seconds in each new home, to predict step times."""
    from assay.hardware.rates import known_machine

    monkeypatch.setattr("assay.studies.execution.ready.calibrate", lambda *given: {})

    monkeypatch.setattr(
        "assay.studies.execution.ready.measured_machine", lambda home, threads, tell: known_machine(home, threads)
    )


@pytest.fixture(autouse=True)
def _torchs_own_settings() -> Iterator[None]:
    """Settings of torch that a run makes end with its test, or all later tests would run on more threads."""
    yield
    if "torch" not in sys.modules:
        return
    import torch

    torch.set_num_threads(_THREADS)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    """The number of threads of torch in the test."""
    import torch

    torch.set_num_threads(request.param)
    return request.param


@pytest.fixture
def updates_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer of torchao's compiles its update, half a minute a test: here it runs as it is written."""
    import torch

    from assay.optimizations.adamw_8bit import step as eight_bit

    monkeypatch.setattr(eight_bit, "_as_written", lambda: torch.compiler.set_stance("force_eager"))


_imported = 0
"""Number of modules that were imported when garbage was collected last."""


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_is_nobodys_garbage() -> None:
    """Whoever measures memory collects garbage first, and need not look through all that was ever imported."""
    _set_aside()


@pytest.fixture(autouse=True)
def _what_tests_imported_is_nobodys_garbage() -> None:
    """A test may import much (a compiler has 200,000 objects), and the next ones of its module need not look there."""
    if len(sys.modules) > _imported + _MANY_MODULES:
        _set_aside()


@pytest.fixture(autouse=True)
def _no_garbage_is_on_a_gpu(request: pytest.FixtureRequest) -> None:
    """The peak of a GPU would count what earlier tests left in cycles."""
    if request.node.get_closest_marker("gpu"):
        gc.collect()


def _set_aside() -> None:
    global _imported
    gc.collect()
    gc.freeze()
    _imported = len(sys.modules)


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """A file or folder of the shared data; the test skips without it."""

    def find(name: str) -> Path:
        if not (SHARED_FILES / name).exists():
            pytest.skip(f"needs ../shared/data/{name}")
        return SHARED_FILES / name

    return find
