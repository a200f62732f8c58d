"""`assay schema`, and that files and `--json` of today's verbs satisfy what it prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay import api
from assay.api.schema import SCHEMAS
from assay.config import Home
from support.children import Fake
from support.forked import fork_children
from support.schemas import faults
from support.trained import Trained

from .conftest import TINY, Assay

SMALL = ("demo", *TINY, "device=cpu")


def test_it_lists_schemas_with_their_versions(assay: Assay) -> None:
    said = assay("schema")
    assert said.code == 0
    assert said.out.splitlines()[1].startswith("run\t1\tresult.json")
    listed = assay("schema", "--json").value
    assert [(one["name"], one["version"]) for one in listed] == [(one.name, one.version) for one in SCHEMAS.values()]


def test_it_prints_one(assay: Assay) -> None:
    assert assay("schema", "run").value == SCHEMAS["run"].plain()


def test_it_writes_one_for_an_editor(assay: Assay, tmp_path: Path) -> None:
    said = assay("schema", "study", "--out", "study.schema.json")
    assert (said.code, said.out) == (0, "study.schema.json\n")
    assert json.loads((tmp_path / "study.schema.json").read_text()) == SCHEMAS["study"].plain()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("runn",), "there is no schema 'runn'"),
        (("--out", "study.schema.json"), "--out needs a schema; name one"),
    ],
)
def test_bad_input_is_one_sentence(assay: Assay, words: tuple[str, ...], sentence: str) -> None:
    said = assay("schema", *words)
    assert said.code == 2
    assert sentence in said.sentence()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("estimate", ("estimate", *SMALL)),
        ("estimate", ("estimate", *SMALL, "--with", "sdpa_attention", "--with", "bf16_mixed")),
        ("estimate", ("estimate", "gpt2-124m", "--device", "h100", "--with", "bf16_mixed")),
        ("estimate", ("estimate", "demo", "model.n_layer=2", "--nproc", "2", "--with", "fully_sharded")),
        ("recommend", ("recommend", *SMALL, "--memory", "1GiB")),
        pytest.param(
            "recommend",
            ("recommend", *SMALL[:-1], "--device", "h100", "--tokens", "1e9", "--price", "2"),
            marks=pytest.mark.slow,
        ),
        ("capacity", ("capacity", *SMALL, "--memory", "9MB")),
        ("doctor", ("doctor",)),
        ("plan", ("plan", "gpt2-124m", "training.batch_size=64", "--nodes", "4", "--with", "data_parallel")),
        (
            "plan",
            ("plan", "gpt2-124m", "training.batch_size=64", "--gpus-per-node", "2", "--with", "pipeline_parallel"),
        ),
        ("inference", ("inference", "gpt2-124m")),
        ("inference", ("inference", "llama-3.2-1b", "--device", "rtx4090", "--bits", "8")),
        ("cost", ("cost", "gpt2-124m", "--tokens", "10B", "--device", "h100", "--price", "2.5")),
        ("cost", ("cost", "gpt2-124m", "--tokens", "10B", "--mfu", "0.4")),
        ("mesh", ("mesh", "--world", "4", "--tp", "2")),
        ("mesh", ("mesh", "--world", "8", "--pp", "2", "--ranks-per-node", "4")),
        pytest.param("machine", ("machine",), marks=pytest.mark.slow),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one[1:] if len(one) < 5 else one[-2:]),
)
def test_an_answer_satisfies_its_schema(assay: Assay, name: str, words: tuple[str, ...]) -> None:
    said = assay(*words, "--json")
    assert said.code == 0, said.err
    assert faults(name, said.value) == []
    closed = said.value[0] if isinstance(said.value, list) else said.value
    assert len(faults(name, [{**closed, "more": 1}] if isinstance(said.value, list) else {**closed, "more": 1})) >= 1


@pytest.mark.slow
def test_a_step_beside_its_baseline_satisfies_its_schema(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        """
import torch
def build(bias=True):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean() if bias else (model(torch.ones(4, 8)) ** 2).sum() / 32
        loss.backward()
        optimizer.step()
        return loss
    return step
def other():
    return build(False)
"""
    )
    said = assay("measure", "mine.py:build", "--against", "mine.py:other", "--blocks", "1", "--json")
    assert said.value["proof"]["baseline"]["steps"]
    assert faults("measure", said.value) == []


@pytest.mark.slow
def test_a_comparison_and_its_files_satisfy_them(assay: Assay, fake: Fake, corpus: str) -> None:
    words = ("--with", "sdpa_attention", "--seeds", "1", "--processes", "1", "--blocks", "2", "--json")
    said = assay("compare", "demo", corpus, *TINY, *words)
    assert said.code == 0, said.err
    assert faults("answer", said.value) == []
    folder = Path(said.value["page"]).parent
    for file, name in (("comparison.json", "comparison"), ("study.json", "study-plan"), ("answer.json", "answer")):
        assert faults(name, read(folder / file)) == []


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_run_and_its_files_satisfy_them(
    assay: Assay, home: Home, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_children(monkeypatch)
    run = api.train("demo", corpus, *TINY, "device=cpu", optimizations="sdpa_attention", home=home).run
    folder = home.runs / run
    assert faults("run", read(folder / "result.json")) == []
    assert faults("run-start", read(folder / "run.json")) == []
    assert faults("run", assay("runs", "show", run, "--json").value) == []


def test_gradients_satisfy_their_schema(assay: Assay, trained: Trained) -> None:
    trained(3)
    said = assay("gradients", "last", "--micro-batches", "2", "--sequences", "2", "--json")
    assert faults("gradients", said.value) == []
