"""A study on a GPU that is absent: each row is the estimate of its own run, and what cannot run there says why."""

import pytest

from assay.api import configure
from assay.api.configuration import on_device
from assay.config import Run
from assay.errors import UsageError
from assay.estimator.every_rank import estimate_every_rank
from assay.hardware import Machine
from assay.optimizations import resolve_run
from assay.studies.base import Study
from assay.studies.kinds.comparison import ComparisonStudy
from assay.studies.kinds.factorial import Factorial
from assay.studies.predicted import PredictedStudy, predicted_study


def there(device: str, *overrides: str) -> tuple[Run, Machine]:
    return on_device(configure("demo", overrides), device)


def predicted(study: Study, device: str = "a100-40gb", *overrides: str) -> PredictedStudy:
    base, machine = there(device, *overrides)
    return predicted_study(study, base, device, machine, lambda run: run.with_vocabulary())


def test_each_row_is_the_estimate_of_its_run() -> None:
    vary = {"model.n_layer": ["2", "4"], "optimizations": ["none", "bf16_mixed"]}
    study = predicted(Factorial.model_validate({"vary": vary}))
    assert [row.label for row in study.rows][:2] == ["baseline", "model.n_layer=2, optimizations=bf16_mixed"]
    base, machine = there("a100-40gb")
    for row in study.rows:
        stack = "" if row.levels["optimizations"] == "none" else row.levels["optimizations"]
        run = configure(base, [f"model.n_layer={row.levels['model.n_layer']}"], stack or None)
        alone = estimate_every_rank(resolve_run(run), machine).fullest
        assert row.found is not None
        assert row.found.to_dict() == alone.to_dict()


def test_a_comparison_has_every_pair_of_its_treatments_once() -> None:
    treatments = ("bf16_mixed", "sdpa_attention", "bf16_mixed+activation_checkpointing")
    study = predicted(ComparisonStudy(treatments=treatments))
    assert [row.label for row in study.named] == ["baseline", *treatments]
    stacks = [frozenset(row.label.split("+")) for row in study.rows if row.paired]
    assert len(stacks) == len(set(stacks))
    assert frozenset({"bf16_mixed", "sdpa_attention"}) in stacks
    assert frozenset({"sdpa_attention", "bf16_mixed", "activation_checkpointing"}) in stacks


def test_a_row_that_the_device_cannot_run_has_the_reason() -> None:
    study = predicted(ComparisonStudy(treatments=("bf16_mixed", "fp16_mixed")), "t4")
    refused = {row.label: row.problem for row in study.rows if row.found is None}
    assert list(refused) == ["bf16_mixed"]
    assert "compute capability 8.0" in refused["bf16_mixed"]


def test_several_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="a device is one GPU"):
        predicted(ComparisonStudy(treatments=("data_parallel",)), "a100-40gb", "ranks=2")


def test_a_control_that_cannot_be_predicted_is_refused_with_the_reason() -> None:
    study = Factorial.model_validate({"vary": {"optimizations": ["bf16_mixed", "sdpa_attention"]}})
    with pytest.raises(UsageError, match=r"the control cannot be predicted: bf16_mixed needs"):
        predicted(study, "t4")
