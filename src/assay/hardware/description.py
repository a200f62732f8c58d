"""A machine as plain data: processors, memory, accelerators, and the rates that were measured on it."""

from collections.abc import Mapping

from pydantic import Field

from assay.config.base import Frozen
from assay.hardware.links import Link
from assay.hardware.operator_speeds import OperatorSpeed
from assay.hardware.step_times import LOADED, StepTimes

AMPERE, ADA, HOPPER = (8, 0), (8, 9), (9, 0)
"""Lowest compute capabilities: the first with bfloat16 and TF32, the second with float8."""

SHEET = "datasheet"
"""Version of torch of rates that no torch has measured."""
_CONTRADICTION = 2.0


class Accelerator(Frozen):
    """One accelerator device."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None
    """CUDA compute capability; None for other kinds of devices."""
    multiprocessors: int | None = None
    """Number of its multiprocessors; None if it is not known."""


class Rates(Frozen):
    """Rates measured with torch on one device, with which achieved figures are compared."""

    device: str
    matmul_flops: Mapping[str, float]
    """Sustained FLOP/s of a large square matrix product, by dtype; a multiply-add counts as two."""
    bandwidth_bytes: float
    """Bytes per second read and written by a large copy."""
    launch_seconds: float
    """Seconds of one operation on a few numbers, recorded for backward: the lower bound of every operation."""
    backward_launch_seconds: float
    """Seconds of the backward of such an operation, with gradients for two arguments."""
    threads: int
    torch: str
    operators: Mapping[str, OperatorSpeed] = Field(default_factory=dict)
    """Speeds of single operators; empty where they were not measured."""
    sheet: str = ""
    """Key of the device among datasheets, if these are its peaks."""
    link: Link | None = None
    """Link between two processes of this machine that compute on such devices; None if it was not measured."""
    doubtful: tuple[str, ...] = ()
    """Dtypes, or `copy`, whose rate was not confirmed by a second trial or is contradicted by another rate."""
    others_share: float | None = None
    """Share of all cores that other programs and other guests of the host used meanwhile; None if not recorded."""

    @property
    def contradictory(self) -> bool:
        """True if float32 is far slower than float64. No processor is like that, although some GPUs are close to it."""
        narrow, wide = (self.matmul_flops.get(dtype) for dtype in ("float32", "float64"))
        return narrow is not None and wide is not None and narrow < wide / _CONTRADICTION

    @property
    def specified(self) -> bool:
        """True if these are peaks of a datasheet, which no step reaches."""
        return bool(self.sheet)

    @property
    def caveat(self) -> str:
        """Reasons why the rates may be too low, in words; empty if none is known."""
        found = []
        if self.others_share is not None and self.others_share > LOADED:
            found.append(f"measured under load, other processes used {self.others_share:.0%} of the cores")
        if self.doubtful:
            found.append(f"no two trials agree: {', '.join(self.doubtful)}")
        return "; ".join(found)


class Machine(Frozen):
    """A host. `detect()` fills in all that is known without torch; `rates` are measured separately."""

    processor: str
    cores: int
    memory_bytes: int
    instructions: tuple[str, ...] = ()
    """Vector and matrix extensions that decide which dtypes are native."""
    instruction_set: str = ""
    """Newest set that oneDNN uses here, in oneDNN's own name in lower case; empty if it is not known."""
    accelerators: tuple[Accelerator, ...] = ()
    rates: Mapping[str, Rates] = Field(default_factory=dict)
    """Rates by device: `cpu`, `cuda`."""
    absent: bool = False
    """True if it is known by a datasheet only, so that a run is predicted here and does not start here."""
    step_times: Mapping[str, StepTimes] = Field(default_factory=dict)
    """Times of whole steps at small depths, by the digest of the step (`estimator.timing.step_time`)."""

    @property
    def native_dtypes(self) -> tuple[str, ...]:
        """Dtypes in which the CPU multiplies matrices in hardware; others are converted, which is slower."""
        native = ["float32", "float64"]
        if {"avx512_bf16", "amx_bf16", "bf16"} & set(self.instructions):
            native.append("bfloat16")
        if {"avx512_fp16", "amx_fp16"} & set(self.instructions):
            native.append("float16")
        return tuple(native)

    def converts(self, dtype: str, wanted: str) -> str:
        """Return why a run on `wanted` multiplies in `dtype` by conversion; empty: it does not, or nobody knows."""
        if self.device(wanted) != "cpu" or not self.instructions or dtype in self.native_dtypes:
            return ""
        return f"this CPU multiplies {dtype} by conversion, which takes more time (oneDNN's guide, Data Types)"

    def older_than(self, capability: tuple[int, int]) -> Accelerator | None:
        """First accelerator that is known to have a lower compute capability; None if there is none."""
        for one in self.accelerators:
            if one.compute_capability is not None and one.compute_capability < capability:
                return one
        return None

    def device(self, wanted: str) -> str:
        """Return `cpu` or `cuda` for a run's `device`; `auto` is an accelerator if there is one."""
        if wanted != "auto":
            return wanted
        return "cuda" if self.accelerators else "cpu"
