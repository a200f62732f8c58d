"""Estimates against published figures, and the errors that a person can mend."""

import subprocess
import sys

import pytest

from assay.config import load
from assay.cost.kernels import CUDA, Gpu
from assay.errors import UsageError
from assay.estimator import estimate
from assay.estimator.estimate import gpu_of
from assay.hardware import Accelerator, Machine
from assay.hardware.devices import absent_machine
from assay.optimizations import Conflict, Unavailable
from support.machines import MEASURED

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)


def test_gpt2_124m_needs_the_published_flops() -> None:
    # nanoGPT's notebook: one sequence of 1024, forward and backward.
    run = load("gpt2-124m", ["training.batch_size=1", "model.bias=false"])
    assert estimate(run, MACHINE).model_flops == 874_944_921_600


def test_recomputation_adds_two_elevenths_of_the_weight_products() -> None:
    run = load("gpt2-124m", ["training.batch_size=1"])
    plain = estimate(run, MACHINE)
    again = estimate(load("gpt2-124m", ["training.batch_size=1", "optimizations=[activation_checkpointing]"]), MACHINE)
    assert again.model_flops == plain.model_flops
    assert plain.step_flops < again.step_flops < plain.step_flops * 4 / 3


def test_optimizer_state_is_two_moments_and_a_count() -> None:
    answer = estimate(load("demo"), MACHINE)
    assert answer.cost.optimizer_state_bytes == 8 * answer.parameters + 4 * len(answer.cost.parameters)


def test_a_step_is_timed_from_measured_rates_only() -> None:
    here = MACHINE.model_copy(update={"rates": {"cpu": MEASURED}})
    run = load("demo")
    assert estimate(run, MACHINE).step_seconds is None
    seconds = estimate(run, here).step_seconds
    assert seconds is not None
    assert seconds >= estimate(run, here).step_flops / 1e11
    # On a CPU launches come on top, by micro-batch; an accelerator's host works ahead of it.
    cut = load("demo", ["optimizations=[gradient_accumulation:micro_batches=4]"])
    ahead = here.model_copy(update={"rates": {"cpu": MEASURED.model_copy(update={"device": "cuda"})}})
    launched, hidden = (estimate(cut, one).step_seconds for one in (here, ahead))
    assert launched is not None
    assert hidden is not None
    assert launched - hidden > 4 * 50 * 3e-6
    # A dtype that was not measured is not guessed.
    assert estimate(load("demo", ["optimizations=[bf16_mixed]"]), here).step_seconds is None


def test_an_operation_of_a_compiled_graph_may_read_nothing() -> None:
    rates = MEASURED.model_copy(update={"matmul_flops": {"float32": 1e11, "bfloat16": 1e11}})
    names = ["bf16_mixed", "compile", "sdpa_attention", "vocab_padding"]
    shape = ["model.vocab_size=65", f"optimizations=[{','.join(names)}]"]
    answer = estimate(load("shakespeare-char-cpu", shape), MACHINE.model_copy(update={"rates": {"cpu": rates}}))
    assert any(not one.inputs for one in answer.cost.tape)
    assert answer.step_seconds is not None


def test_an_update_that_multiplies_takes_that_much_longer() -> None:
    rates = MEASURED.model_copy(update={"matmul_flops": {"float32": 1e11, "bfloat16": 1e9}, "bandwidth_bytes": 1e12})
    here = MACHINE.model_copy(update={"rates": {"cpu": rates}})
    plain, orthogonal = (estimate(load("demo", [f"optimizations=[{name}]"]), here) for name in ("", "muon"))
    shapes = [(64, 192), (64, 64), (64, 256), (64, 256)]
    # Its loop passes over a hidden matrix 7.5 times less often than AdamW's, in half an operator more.
    moved, launched = -7.5 * 4 * 3 * sum(m * n for m, n in shapes) / 1e12, 3 * 4 * 0.5 * 1e-6
    # Of a matrix of m × n, m ≤ n, five times m²n, m³ and m²n multiply-adds, at the rate of bfloat16.
    flops = 3 * sum(5 * 2 * (2 * m * m * n + m**3) for m, n in shapes)
    assert orthogonal.step_flops - plain.step_flops == orthogonal.flops["bfloat16"] == flops
    assert orthogonal.model_flops == plain.model_flops
    assert plain.step_seconds is not None
    assert orthogonal.step_seconds == pytest.approx(
        plain.step_seconds + flops / 1e9 + moved + 3 * 4 * 15 * 1e-6 + launched
    )


@pytest.mark.parametrize(
    ("overrides", "error", "says"),
    [
        (["optimizations=[gradient_accumulation:micro_batches=5]"], Conflict, "cannot be cut into"),
        (["optimizations=[activation_checkpointing:every=9]"], Conflict, "more than the model's 3 blocks"),
        (["optimizations=[sdpa_attention]", "model.dropout=0.1"], Unavailable, "no fused kernel on a CPU"),
        (["data.tokenizer=char"], UsageError, "once the corpus is prepared"),
    ],
)
def test_impossible_settings_are_refused(overrides: list[str], error: type[UsageError], says: str) -> None:
    with pytest.raises(error, match=says):
        estimate(load("demo", overrides), MACHINE)


def test_estimating_imports_no_torch() -> None:
    code = (
        "import sys; from assay.api import estimate; "
        "estimate('gpt2-1558m', optimizations='bf16_mixed+activation_checkpointing').timeline; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def machine(capability: tuple[int, int] | None) -> Machine:
    gpu = Accelerator(name="any", memory_bytes=2**36, compute_capability=capability)
    return Machine(processor="any", cores=1, memory_bytes=2**34, accelerators=(gpu,))


def test_a_datasheet_has_all_of_it() -> None:
    assert gpu_of(absent_machine("l4")) == Gpu((8, 9), 58, 1536)


def test_a_known_capability_is_that_of_the_largest() -> None:
    assert gpu_of(machine((8, 9))) == Gpu((8, 9), 142, 1536)


def test_an_unknown_gpu_is_a_hopper() -> None:
    assert gpu_of(machine(None)) == gpu_of(machine((99, 0))) == CUDA.gpu
