"""The folder is the registry: a file dropped into one is all that a new optimization takes."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.config import ModelConfig, Run, Spec, identity
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, card, catalogue, check, forget, resolve, resolve_run, search

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)

TOY = '''
"""Train on every token twice as slowly: halve the learning rate."""

from dataclasses import replace
from typing import ClassVar

from assay.optimizations import Numerics, Optimization, Stage


class HalvedRate(Optimization):
    factor: float = 0.5
    """What the learning rate is multiplied with."""

    title: ClassVar = "halved learning rate"
    stage: ClassVar = Stage.STEP
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "nothing"
    pays: ClassVar = "patience"
    sources: ClassVar = ("a test",)
    claims: ClassVar = frozenset({"CLAIM"})

    def predict(self, cost, run, machine):
        return replace(cost, tables=cost.tables[:0])

    def apply(self, program, run):
        schedule = program.schedule
        return replace(program, schedule=lambda step: self.factor * schedule(step))

    def verify(self, trace, run):
        return self.evidence(f"{trace.batch.targets} tokens", trace.batch.targets > 0)
'''


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "halved_rate.py").write_text(TOY)
    names = search(tmp_path)
    yield "halved_rate"
    forget(names)


def test_a_file_in_a_folder_is_in_the_catalogue_the_cards_and_the_estimate(toy: str) -> None:
    assert toy in catalogue()
    assert card(catalogue()[toy]).fields[0].description == "What the learning rate is multiplied with."
    run = Run(model=ModelConfig(vocab_size=10), optimizations=(Spec(name=toy),))
    assert estimate(run, MACHINE).cost.tables == ()


def test_a_dropped_in_file_trains(toy: str) -> None:
    from support.runs import run_with
    from support.steps import losses

    changed, plain = losses(run_with(Spec(name=toy))), losses(run_with())
    assert changed[0] == plain[0]
    assert changed[2] != plain[2]


def test_it_is_gone_once_forgotten(toy: str) -> None:
    forget([toy])
    with pytest.raises(UsageError, match="unknown optimization 'halved_rate'"):
        resolve(Spec(name=toy))


def test_two_claimants_of_one_seam_conflict_without_knowing_each_other(tmp_path: Path) -> None:
    for name in ("first_claim", "second_claim"):
        (tmp_path / f"{name}.py").write_text(TOY)
    names = search(tmp_path)
    try:
        run = Run(optimizations=tuple(Spec(name=name) for name in names))
        with pytest.raises(Conflict, match="second_claim and first_claim both replace the step's CLAIM"):
            check(run, MACHINE)
    finally:
        forget(names)


EXCLUDING = TOY.replace("CLAIM", "patience").replace(
    "    def predict(",
    """    def excludes(self, run):
        return {"optimizer": "halved_rate is for the optimizer of the run, and {other} brings one"}

    def requires(self, run, machine):
        return {} if self.factor == 0.5 else {"recomputation": "halved_rate:factor wants recomputation beside it"}

    def predict(""",
)


def test_traits_of_another_are_excluded_or_required_without_its_name(tmp_path: Path) -> None:
    (tmp_path / "halved_rate.py").write_text(EXCLUDING)
    names, model, machine = search(tmp_path), ModelConfig(vocab_size=10), MACHINE
    try:
        check(Run(model=model, optimizations=Spec.parse_stack("halved_rate+activation_checkpointing")), machine)
        with pytest.raises(Conflict, match="and lion brings one"):
            check(Run(model=model, optimizations=Spec.parse_stack("halved_rate+lion")), machine)
        with pytest.raises(Conflict, match="wants recomputation beside it"):
            check(Run(model=model, optimizations=Spec.parse_stack("halved_rate:factor=0.25+bf16_mixed")), machine)
        check(
            Run(model=model, optimizations=Spec.parse_stack("halved_rate:factor=0.25+selective_checkpointing")), machine
        )
    finally:
        forget(names)


def test_no_file_names_another_technique() -> None:
    for name, kind in catalogue().items():
        tree = ast.parse(Path(inspect.getfile(kind)).read_text())
        texts = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert texts & (catalogue().keys() - {name}) == set(), name


def test_a_file_without_an_optimization_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty_file.py").write_text('"""Nothing."""\n')
    with pytest.raises(UsageError, match="must define exactly one Optimization, and defines 0"):
        search(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sdpa_atention", "did you mean 'sdpa_attention'"),
        ("gradient_accumulation:micro_batch=4", "did you mean 'micro_batches'"),
        ("gradient_accumulation:micro_batches=1", "greater than or equal to 2"),
        ("gradient_accumulation:micro_batches=two", "valid integer"),
        ("bf16_mixed:x=1", "it has no fields"),
    ],
)
def test_a_wrong_name_or_field_says_what_was_meant(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolve(Spec.parse(text))


def test_order_and_defaults_do_not_change_a_runs_identity() -> None:
    one = Run(optimizations=(Spec(name="bf16_mixed"), Spec.parse("gradient_accumulation:micro_batches=4")))
    other = Run(optimizations=(Spec(name="gradient_accumulation"), Spec(name="bf16_mixed")))
    assert identity(resolve_run(one)) == identity(resolve_run(other))
    assert identity(resolve_run(one)) != identity(resolve_run(Run()))


def test_a_user_s_own_folder_adds_techniques(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optimizations").mkdir()
    (tmp_path / "optimizations" / "halved_rate.py").write_text(TOY)
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path))
    assert "halved_rate" in catalogue()
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="is no folder"):
        catalogue()
    monkeypatch.delenv("ASSAY_EXTENSIONS")
    assert "halved_rate" not in catalogue()


def test_a_file_without_a_constant_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "from assay.optimizations import Optimization\n"
        "class Half(Optimization):\n"
        "    title = 'half'\n"
        "    stage = 'first'\n"
    )
    with pytest.raises(UsageError, match=r"half\.py: Half\.stage is missing, or is no Stage"):
        search(tmp_path)
