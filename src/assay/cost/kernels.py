"""Allocations in which the kernels of a CPU differ from those of a GPU, as data."""

from dataclasses import dataclass, replace
from typing import NamedTuple


class Gpu(NamedTuple):
    """One GPU, as far as what its kernels take inside depends on it."""

    capability: tuple[int, int]
    """CUDA compute capability."""
    multiprocessors: int
    threads: int
    """Most threads of one multiprocessor."""


_WIDENS_NORMS = (2, 12)
"""First release of torch whose autocast widens RMS norms on a CUDA device."""


@dataclass(frozen=True)
class Kernels:
    """Allocations in which the kernels of one kind of device differ from another's."""

    dropout_noise: str | None
    """dtype of the noise that dropout saves; None: the input's."""
    softmax_autocast: str | None
    """dtype to which autocast widens softmax and norms; None: it leaves them."""
    copied_gathers: bool
    """True if collectives gather into a copy of the requested tensor, as gloo's do."""
    generator_bytes: int
    """Bytes of the random generator's state as a tensor on the device; 0 for a GPU, whose state is on the host."""
    number_bytes: int
    """Bytes of the tensor in which torch wraps a Python number; 0 if that is on the host."""
    float8_in_float32: bool
    """True if a float8 product multiplies copies in float32: a processor without AMX has no other."""
    fused_rms_norm: bool
    """True if an RMS norm is one kernel, which saves its input and a number for each row."""
    rms_norm_autocast: bool
    """True if autocast widens RMS norms, too: on a CUDA device from torch 2.12 on (pytorch#174824)."""
    softmax_product: bool
    """True if softmax's backward multiplies gradient and output into a tensor of its own."""
    gpu: Gpu | None = None
    """The GPU; None for a CPU."""


CPU = Kernels(
    dropout_noise=None,
    softmax_autocast=None,
    copied_gathers=True,
    generator_bytes=5056,
    number_bytes=8,
    float8_in_float32=True,
    fused_rms_norm=False,
    rms_norm_autocast=False,
    softmax_product=False,
)
CUDA = Kernels(
    dropout_noise="bool",
    softmax_autocast="float32",
    copied_gathers=False,
    generator_bytes=0,
    number_bytes=0,
    float8_in_float32=False,
    fused_rms_norm=True,
    rms_norm_autocast=True,
    softmax_product=True,
    gpu=Gpu((9, 0), 132, 2048),
)
"""Kernels of a Hopper GPU by the newest torch; they take more than those of any other. `on` has those of another."""


def on(gpu: Gpu, torch_release: tuple[int, ...] = _WIDENS_NORMS) -> Kernels:
    """Return the kernels of a GPU by a release of torch, such as (2, 13)."""
    return replace(CUDA, gpu=gpu, rms_norm_autocast=torch_release >= _WIDENS_NORMS)
