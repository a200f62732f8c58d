"""NorMuon: Muon's products, one more number a row; Muon, which lacks the rows, does not pass for it."""

import pytest

from assay.config import ModelConfig, Run, Spec
from assay.cost import baseline
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve
from assay.optimizers.recipes import muon
from support.runs import SHAPE, run_with
from support.steps import build_step, traced
from support.swapped import proof_of, traced_with

CPU = Machine(processor="any", cores=4, memory_bytes=2**34)
NORMUON = Spec(name="normuon")
RUN = run_with(NORMUON)


def test_products_and_rows_are_counted() -> None:
    evidence = proof_of(RUN, traced(RUN))
    assert evidence.observed == (
        "240 products updated 16 hidden matrices; AdamW updated 36 other parameters; 1152 mean squares for 1152 rows"
    )


def test_its_numbers_are_those_of_the_published_code() -> None:
    """Rule and program take them from one place."""
    (group,) = (one for one in build_step(RUN).optimizer.param_groups if "beta2" in one)
    assert (group["momentum"], group["beta2"], group["eps"]) == (0.95, 0.95, 1e-10)


def test_muon_is_caught() -> None:
    evidence = proof_of(RUN, traced_with(muon(RUN.training, 0.95), RUN))
    assert evidence.observed.endswith("0 mean squares for 1152 rows")
    assert not evidence.verdict


def test_the_state_is_muons_and_a_number_a_row() -> None:
    plain, rows = (estimate(run_with(Spec(name=name)), CPU).cost for name in ("muon", "normuon"))
    assert rows.optimizer_state_bytes - plain.optimizer_state_bytes == 4 * 1152
    assert baseline(RUN).optimizer_state_bytes > rows.optimizer_state_bytes


@pytest.mark.parametrize("other", ["fully_sharded", "tensor_parallel", "zero_optimizer"])
def test_divided_matrices_are_refused(other: str) -> None:
    run = Run(model=SHAPE, ranks=2, device="cpu", optimizations=(NORMUON, Spec(name=other)))
    with pytest.raises(Conflict, match=f"{other} splits them"):
        check(run, CPU)


def test_a_mixture_is_refused() -> None:
    mixture = Run(model=ModelConfig(n_expert=4), optimizations=(NORMUON,))
    with pytest.raises(Conflict, match=r"leave out normuon or model\.n_expert"):
        resolve(NORMUON).check(mixture, CPU)
