"""Allocations in which the kernels of a CPU differ from those of a GPU, as data."""

from dataclasses import dataclass


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


CPU = Kernels(
    dropout_noise=None,
    softmax_autocast=None,
    copied_gathers=True,
    generator_bytes=5056,
    number_bytes=8,
    float8_in_float32=True,
)
CUDA = Kernels(
    dropout_noise="bool",
    softmax_autocast="float32",
    copied_gathers=False,
    generator_bytes=0,
    number_bytes=0,
    float8_in_float32=False,
)
