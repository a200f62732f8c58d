"""A run's budget of tokens, against a text whose tokens are counted by hand."""

from pathlib import Path

import pytest

from assay import api
from assay.config import Home
from assay.report import view
from assay.report.kit.blocks import Table

SHAPE = ("model.n_layer=1", "model.n_head=1", "model.n_embd=8", "model.context_length=10", "training.batch_size=4")


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("0123456789" * 100)
    return f"data.path={path}"


def test_tokens_steps_and_epochs(tmp_path: Path, text: str) -> None:
    asked = (*SHAPE, text, "data.tokenizer=byte", "data.validation_fraction=0.1", "training.steps=45")
    found = api.token_budget("demo", *asked, home=Home(tmp_path / "home"))
    assert (found.train_tokens, found.validation_tokens, found.tokens_per_step) == (900, 100, 40)
    assert found.steps_per_epoch == 22.5
    assert (found.tokens, found.epochs) == (1800, 2.0)
    assert found.tokens_per_parameter == 1800 / found.parameters
    assert found.optimal_steps == round(20 * found.parameters / 40)
    table, repeated, optimal = view(found).blocks()
    assert isinstance(table, Table)
    assert ("steps per epoch", "22.5") in table.rows
    assert repeated == "The run reads the training text 2 times."
    assert f"training.steps={found.optimal_steps}" in str(optimal)


def test_a_plan_says_what_of_the_corpus_is_left_out(tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.txt").write_text("0123456789" * 100)
    (books / "b.txt").write_bytes("Bücher".encode("latin-1"))
    found = api.token_budget("demo", *SHAPE, f"data.path={books}", home=Home(tmp_path / "home"))
    assert found.remarks[0].startswith("left out: 1 file of 6 B, not UTF-8; ")
    assert found.remarks[0] in list(view(found).blocks())


def test_a_plan_says_what_of_streamed_files_is_left_out(tmp_path: Path, text: str) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.txt").write_text("0123456789" * 100)
    (books / "b.txt").write_bytes("Bücher".encode("latin-1"))
    run = api.configure("demo", (*SHAPE, text), optimizations=f"streaming:path={books}")
    (said,) = api.token_budget(run, home=Home(tmp_path / "home")).remarks
    assert said.startswith("left out: 1 file of 6 B, not UTF-8; ")
    assert said.endswith("b.txt")


@pytest.mark.parametrize("source", ["path", "dataset"])
def test_a_plan_counts_streamed_records_without_text(tmp_path: Path, text: str, source: str) -> None:
    pytest.importorskip("datasets")
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.jsonl").write_text('{"text": "0123456789"}\n{"text": null}\n' * 3)
    run = api.configure("demo", (*SHAPE, text), optimizations=f"streaming:{source}={books}")
    (said,) = api.token_budget(run, home=Home(tmp_path / "home")).remarks
    assert said.startswith(f"left out: 3 records, null and no text; the first is {books}")


def test_a_limit_of_tokens_ends_the_run_before_its_steps(tmp_path: Path, text: str) -> None:
    asked = (*SHAPE, text, "training.steps=1000", "training.tokens=90")
    found = api.token_budget("demo", *asked, home=Home(tmp_path / "home"))
    assert (found.steps, found.tokens) == (3, 120), "a step is never cut"


def test_a_mixture_counts_the_parameters_that_a_token_passes(tmp_path: Path, text: str) -> None:
    asked = (*SHAPE, text, "model.n_expert=4", "training.steps=10")
    found = api.token_budget("demo", *asked, home=Home(tmp_path / "home"))
    assert found.active_parameters < found.parameters
    assert found.tokens_per_parameter == found.tokens / found.active_parameters
    assert "of them active per token" in str(next(iter(view(found).blocks())))
