"""The GPU of a machine, as far as the memory of its kernels depends on it."""

from assay.cost.kernels import CUDA, Gpu, Kernels, on
from assay.hardware import Accelerator, Machine
from assay.hardware.detect import release, torch_version
from assay.hardware.devices import DEVICES
from assay.hardware.limits import LIMITS


def kernels_of(machine: Machine) -> Kernels:
    """Return the kernels of the first GPU of a machine, by the installed torch."""
    installed = torch_version()
    return on(gpu_of(machine), *([] if installed is None else [release(installed)]))


def gpu_of(machine: Machine) -> Gpu:
    """Return the first GPU of a machine.

    Its number of multiprocessors, if that is not known, is the largest of its capability. A GPU of which nothing is
    known, or whose capability is not, counts as a Hopper, which takes the most.
    """
    one = next(iter(machine.accelerators), Accelerator(name="", memory_bytes=0))
    capability = one.compute_capability
    alike = [found.multiprocessors or 0 for found in DEVICES.values() if found.capability == capability]
    count = one.multiprocessors or max(alike, default=0)
    if capability is None or capability not in LIMITS or not count:
        assert CUDA.gpu is not None
        return CUDA.gpu
    return Gpu(capability, count, LIMITS[capability].threads)
