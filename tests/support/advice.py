"""A machine with round rates of every dtype, and problems of advice on small runs."""

from assay.advise.problem import Limits, Problem
from assay.api import configure
from assay.config import ResolvedRun
from assay.hardware import Machine, Rates
from assay.hardware.devices import absent_machine
from assay.optimizations import resolve_run

RATES = Rates(
    device="cpu",
    matmul_flops={"float64": 4e10, "float32": 1e11, "bfloat16": 2e11, "float16": 5e10, "tf32": 3e11},
    bandwidth_bytes=1e10,
    launch_seconds=1e-6,
    backward_launch_seconds=2e-6,
    threads=2,
    torch="any",
)
HERE = Machine(processor="any", cores=2, memory_bytes=2**34, instruction_set="avx512_core_bf16", rates={"cpu": RATES})
THERE = absent_machine("a100").model_copy(update={"rates": {"cuda": RATES.model_copy(update={"device": "cuda"})}})
SMALL = ("model.n_layer=5", "model.n_embd=32", "model.n_head=2", "model.context_length=32", "training.batch_size=4")
PLENTY = 2**40


def small(*changes: str) -> ResolvedRun:
    """Return a run of five narrow blocks."""
    return resolve_run(configure("demo", (*SMALL, "device=cpu", *changes)).with_vocabulary())


def problem(*changes: str, budget: int = PLENTY, of: str = "tensors", loss_change: float | None = None) -> Problem:
    """Return the problem of a small run on a machine with round rates."""
    return Problem(small(*changes), HERE, Limits(budget, of, loss_change))


def restricted(names: set[str], budget: int = PLENTY, of: str = "tensors") -> Problem:
    """Return the problem whose elements are only some techniques; on a GPU if `of` is ``device``."""
    from assay.advise.ledgers import Ledgers

    there = of == "device"
    run = small().model_copy(update={"device": "cuda"}) if there else small()
    found = Problem(run, THERE if there else HERE, Limits(budget, of))
    found.found = tuple(one for one in found.found if one.one.name() in names)
    found.ledgers = Ledgers(found.run, found.machine, found.found, RATES, of)
    return found
