"""Cautious decay: it acts on AdamW, Lion, Muon and NorMuon, refuses what it cannot reach, and plain decay is caught."""

from pathlib import Path

import pytest

from assay.config import Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check, expected_of, resolve
from assay.optimizers.recipes import adamw
from assay.records.evidence import Evidence
from assay.reference.matrix_rules import MuonRule
from support.runs import UNTIED, run_with
from support.steps import traced
from support.swapped import proof_of, traced_with
from values.recording import proof_of_values

CPU = Machine(processor="any", cores=4, memory_bytes=2**34)
CAUTIOUS = Spec(name="cautious_decay")
RUN = run_with(CAUTIOUS)


def test_every_decaying_parameter_is_compared_with_its_update() -> None:
    assert proof_of(RUN, traced(RUN)).observed == "18 of 18 decaying parameters compared with their updates"


def test_a_schedule_that_has_reached_zero_is_compared_as_well() -> None:
    still = RUN.training.model_copy(update={"learning_rate": 0.0, "min_learning_rate": 0.0})
    run = RUN.model_copy(update={"training": still})
    assert proof_of(run, traced(run)).verdict


def test_plain_decay_is_caught() -> None:
    assert not proof_of(RUN, traced_with(adamw(RUN.training), RUN)).verdict


@pytest.mark.parametrize("other", ["lion", "muon", "normuon"])
def test_it_is_proven_beside_optimizers_with_a_direction(other: str) -> None:
    run = run_with(CAUTIOUS, Spec(name=other))
    check(run, CPU)
    trace = traced(run)
    proofs: list[Evidence] = [resolve(Spec(name=name)).verify(trace, run) for name in ("cautious_decay", other)]
    assert [one.verdict for one in proofs] == [True, True], [one.observed for one in proofs]


def test_tensors_that_muon_leaves_to_adamw_decay_cautiously_too() -> None:
    rule = expected_of(run_with(CAUTIOUS, Spec(name="muon"))).rule
    assert isinstance(rule, MuonRule)
    assert (rule.cautious, rule.others.cautious) == (True, True)


def test_groups_of_mup_decay_cautiously_too(tmp_path: Path) -> None:
    run = run_with(CAUTIOUS, Spec(name="mup", fields={"base_width": 8}), model=UNTIED)
    assert proof_of_values(run, tmp_path).failures == ()


@pytest.mark.parametrize("other", ["adam", "adafactor", "adamw_8bit", "foreach_adamw", "fused_adamw", "sgd"])
def test_an_optimizer_whose_decay_it_cannot_reach_is_refused(other: str) -> None:
    with pytest.raises(Conflict, match="both replace the step's weight decay; choose one of them"):
        check(run_with(CAUTIOUS, Spec(name=other)), CPU)


def test_weights_in_16_bits_are_refused() -> None:
    with pytest.raises(Conflict, match="bf16_full rounds weights too coarsely"):
        check(run_with(CAUTIOUS, Spec(name="bf16_full")), CPU)


def test_a_run_in_which_nothing_decays_is_refused() -> None:
    still = RUN.model_copy(update={"training": RUN.training.model_copy(update={"weight_decay": 0.0})})
    with pytest.raises(Conflict, match=r"set training.weight_decay above 0"):
        resolve(CAUTIOUS).check(still, CPU)
