"""A GPU that is not there: run an unchanged script on it, and the peak of one step."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from assay.api.configuration import Source, Stack, configure, on_device, predictable
from assay.config.home import Home
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.absent.allocator_runs import AllocatorRuns
    from assay.absent.largest import LargestFit
    from assay.absent.ranks_answer import RanksAnswer
    from assay.absent.script_answer import AbsentAnswer
    from assay.fake.peak import GpuPeak


def absent(
    device: str,
    command: Sequence[str],
    *,
    steps: int | None = None,
    devices: int = 1,
    reads: Sequence[str] = (),
    times: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
    on_progress: Callable[[str], None] = lambda text: None,
) -> "AbsentAnswer":
    """Run a command such as ``["python", "train.py"]`` on an absent GPU, and return its peaks, counts and reads.

    `steps` ends the script after so many steps of its optimizer. `reads` states values, as in ``train.py:12=300``.
    With `times` the operators of the third step are kept, and the answer has the predicted time of a step. `variables`
    are added to the script's environment. The command's Python needs a CUDA build of torch. Raises `UsageError` if the
    machine or that Python does not allow it.
    """
    from assay.absent.gpus import absent_device
    from assay.absent.launch import TIMES, run_absent, stated_read
    from assay.absent.script_answer import AbsentAnswer

    found = absent_device(device)
    _check_command(command, device)
    stated = [stated_read(one) for one in reads]
    asked = {**variables, **({TIMES: "1"} if times else {})}
    launched = run_absent(command, found, count=devices, steps=steps, reads=stated, variables=asked, tell=on_progress)
    return AbsentAnswer(found, devices, command, launched)


def absent_allocators(
    device: str,
    command: Sequence[str],
    *,
    settings: Sequence[str] = (),
    steps: int | None = None,
    devices: int = 1,
    reads: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> "AllocatorRuns":
    """Run a command on an absent GPU once for each of several settings of torch's allocator, and compare their peaks.

    `settings` are texts for `PYTORCH_ALLOC_CONF`, such as ``"expandable_segments:True"``. Without any, four usual ones
    are taken. The first run has torch's defaults. Raises `UsageError` as `absent` does, and if the environment has
    such settings already.
    """
    from assay.absent.allocator_runs import chosen_settings, run_allocators

    def ask(variables: dict[str, str]) -> "AbsentAnswer":
        on_progress(" ".join(variables.values()) or "torch's defaults")
        return absent(
            device, command, steps=steps, devices=devices, reads=reads, variables=variables, on_progress=on_progress
        )

    return run_allocators(chosen_settings(settings), ask)


def absent_largest(
    device: str,
    command: Sequence[str],
    *,
    steps: int | None = None,
    devices: int = 1,
    reads: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> "LargestFit":
    """Find the largest number in the place of ``{}`` in a command with which the script fits an absent GPU.

    The command is such as ``["python", "train.py", "--batch_size={}"]``. Each number is one run of `absent`, which ends
    after two steps unless `steps` says otherwise. Raises `UsageError` as `absent` does, or if nothing has ``{}``.
    """
    from assay.absent.largest import STEPS, largest_fit, with_number

    def ask(number: int) -> "AbsentAnswer":
        tried = with_number(command, number)
        found = absent(device, tried, steps=steps or STEPS, devices=devices, reads=reads, on_progress=on_progress)
        on_progress(f"{number}: {found.fit.words}")
        return found

    return largest_fit(ask)


def absent_ranks(
    device: str,
    command: Sequence[str],
    ranks: int,
    *,
    run: str | None = None,
    devices: int | None = None,
    steps: int | None = None,
    reads: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> "RanksAnswer":
    """Run a script that torchrun would start as one of several ranks, and return the peaks and collectives of each.

    `run` names the ranks that are run, such as ``"0,3"`` or ``"all"``; without it, the first and the last. `devices` is
    the number of GPUs of a host, 8 or `ranks` by default. The other ranks are absent, so nothing is received. Raises
    `UsageError` as `absent` does, and for ranks that do not exist.
    """
    from assay.absent.gpus import absent_device
    from assay.absent.launch import stated_read
    from assay.absent.ranks_answer import check_launcher, chosen_ranks, ranks_of, run_ranks

    found = absent_device(device)
    _check_command(command, device)
    check_launcher(command)
    planned = ranks_of(ranks, devices, None if run is None else chosen_ranks(run, ranks))
    return run_ranks(command, found, planned, steps, [stated_read(one) for one in reads], on_progress)


def _check_command(command: Sequence[str], device: str) -> None:
    if not command:
        raise UsageError(
            f"no script is given; write it after two dashes, as in: assay absent {device} -- python train.py"
        )


Way = Literal["trace", "absent"]


def gpu_peak(
    source: Source = None,
    *overrides: str,
    device: str,
    optimizations: Stack = (),
    way: Way | None = None,
    largest: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> "GpuPeak":
    """Predict the peak memory of one optimizer step on a GPU that is not there.

    `source` is a configuration, or a function of your own that returns a model or a step: ``train.py:build``. With
    `way` ``trace`` its program is followed on fake tensors, with any build of torch. With ``absent`` torch's CUDA build
    runs it on an absent GPU, which also tells what is reserved. Without a `way` it is ``absent`` where that is
    possible. `largest` also looks for the largest batch that fits. Raises `UsageError`.
    """
    from assay.absent.gpus import absent_device
    from assay.launch import gpu_peak as ways
    from assay.optimizations import check, mesh_of, resolve_run

    absent_device(device)
    run, machine = on_device(configure(source, overrides, optimizations), device)
    with predictable(run, Home()) as known:
        fixed = resolve_run(known)
        if mesh_of(fixed).size > 1:
            raise UsageError("the peak is of the step of one device; leave out techniques that divide it among ranks")
        check(fixed, machine)
    given = any(one.startswith("training.batch_size=") for one in overrides)
    asked = {"batch": fixed.training.batch_size if given else None, "largest": largest}
    way = way or _possible(on_progress)
    find = ways.run_on_absent_gpu if way == "absent" else ways.trace_on_fake_tensors
    return find(fixed, device, on_progress, **asked)


def _possible(tell: Callable[[str], None]) -> Way:
    """Return the way that is possible here, and tell it; running the step comes first."""
    from assay.launch.gpu_peak import refusal

    refused = refusal()
    if refused is None:
        tell("the step runs on an absent GPU, with torch's CUDA build")
        return "absent"
    tell(f"the step is traced on fake tensors: {refused}")
    return "trace"
