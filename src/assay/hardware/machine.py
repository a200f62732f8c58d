"""What a machine is, as plain data: processors, memory, accelerators, and the rates that were measured on it."""

from collections.abc import Mapping

from pydantic import Field

from assay.config.base import Frozen
from assay.hardware.links import Link

AMPERE, ADA = (8, 0), (8, 9)
"""Compute capabilities: the first with bfloat16 and TF32, the first with float8."""

_LOADED = 0.1
"""A share of the cores that may slow a measurement down."""
_CONTRADICTION = 2.0


class Accelerator(Frozen):
    """One device."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None
    """CUDA's; None for other kinds."""


class Rates(Frozen):
    """What was measured with torch on one device: the roof that achieved figures are held against."""

    device: str
    matmul_flops: Mapping[str, float]
    """Sustained FLOP/s of a large square matrix product, by dtype; a multiply-add counts two."""
    bandwidth_bytes: float
    """Bytes per second read and written by a large copy."""
    launch_seconds: float
    """For one operation on a few numbers, recorded for backward: what no operation falls below."""
    backward_launch_seconds: float
    """For the backward of such an operation, with gradients for two arguments."""
    threads: int
    torch: str
    link: Link | None = None
    """Between two processes of this machine that compute on such devices; None where it was not measured."""
    doubtful: tuple[str, ...] = ()
    """Dtypes, or `copy`, whose rate no second trial confirmed, or another rate contradicts."""
    others_share: float | None = None
    """Of all cores, what other programs and other guests of the host had meanwhile; None where it was not noted."""

    @property
    def contradictory(self) -> bool:
        """Whether float32 comes out far slower than float64, which no processor does; some GPUs come a little near."""
        narrow, wide = (self.matmul_flops.get(dtype) for dtype in ("float32", "float64"))
        return narrow is not None and wide is not None and narrow < wide / _CONTRADICTION

    @property
    def caveat(self) -> str:
        """Why the rates may be too low, in words; empty where nothing says so."""
        found = []
        if self.others_share is not None and self.others_share > _LOADED:
            found.append(f"measured under load, others had {self.others_share:.0%} of the cores")
        if self.doubtful:
            found.append(f"no two trials agree: {', '.join(self.doubtful)}")
        return "; ".join(found)


class Machine(Frozen):
    """A host. `detect()` fills in what can be known without torch; `rates` come from a measurement of its own."""

    processor: str
    cores: int
    memory_bytes: int
    instructions: tuple[str, ...] = ()
    """The vector and matrix extensions that decide which dtypes are native."""
    instruction_set: str = ""
    """The newest set that oneDNN uses here, by its own name in lower case; empty where it is not known."""
    accelerators: tuple[Accelerator, ...] = ()
    rates: Mapping[str, Rates] = Field(default_factory=dict)
    """By device: `cpu`, `cuda`."""

    @property
    def native_dtypes(self) -> tuple[str, ...]:
        """Dtypes in which the CPU multiplies matrices in hardware; others run, slower, through conversion."""
        native = ["float32", "float64"]
        if {"avx512_bf16", "amx_bf16", "bf16"} & set(self.instructions):
            native.append("bfloat16")
        if {"avx512_fp16", "amx_fp16"} & set(self.instructions):
            native.append("float16")
        return tuple(native)

    def older_than(self, capability: tuple[int, int]) -> Accelerator | None:
        """An accelerator that is known to have a lower compute capability; None where there is none."""
        for one in self.accelerators:
            if one.compute_capability is not None and one.compute_capability < capability:
                return one
        return None

    def device(self, wanted: str) -> str:
        """`cpu` or `cuda` for a run's `device`, `auto` being an accelerator where there is one."""
        if wanted != "auto":
            return wanted
        return "cuda" if self.accelerators else "cpu"
