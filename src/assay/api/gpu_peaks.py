"""The peak of a step on a GPU that is not there, from a trace or from torch's CUDA build."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from assay.api.configuration import Source, Stack, configure, on_device, predictable
from assay.config.home import Home
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.fake.peak import GpuPeak

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
