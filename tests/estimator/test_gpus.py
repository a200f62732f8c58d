"""The GPU of a machine: its datasheet's, the largest of its capability, or a Hopper."""

from assay.cost.kernels import CUDA, Gpu
from assay.estimator.gpus import gpu_of
from assay.hardware import Accelerator, Machine
from assay.hardware.devices import absent_machine


def machine(capability: tuple[int, int] | None) -> Machine:
    gpu = Accelerator(name="any", memory_bytes=2**36, compute_capability=capability)
    return Machine(processor="any", cores=1, memory_bytes=2**34, accelerators=(gpu,))


def test_a_datasheet_has_all_of_it() -> None:
    assert gpu_of(absent_machine("l4")) == Gpu((8, 9), 58, 1536)


def test_a_known_capability_is_that_of_the_largest() -> None:
    assert gpu_of(machine((8, 9))) == Gpu((8, 9), 142, 1536)


def test_an_unknown_gpu_is_a_hopper() -> None:
    assert gpu_of(machine(None)) == gpu_of(machine((99, 0))) == CUDA.gpu
