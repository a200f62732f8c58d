import html
import signal
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.report.kit import view
from support.children import Fake

from .conftest import TINY, Assay

ONCE = ("--seeds", "1", "--processes", "1")
DESIGN = (*TINY, "--with", "sdpa_attention", "--with", "bf16_mixed", *ONCE, "--blocks", "2")


def test_it_prints_a_table_and_last_the_page(assay: Assay, fake: Fake, corpus: str) -> None:
    said = assay("compare", "demo", corpus, *DESIGN)
    assert said.code == 0, said.err
    first, *_ = said.out.splitlines()
    assert first == "Nothing is shown to save time or memory at the same loss."
    for piece in ("baseline ", "sdpa_attention ", "bf16_mixed ", "1000 B", "2.6000", "--full    prints every figure"):
        assert piece in said.out
    assert "baseline (again)" not in said.out
    page = Path(said.out.splitlines()[-1])
    assert page.is_absolute()
    assert "sdpa_attention" in page.read_text()
    assert (page.parent / "comparison.json").exists()
    assert "\n4 configurations × 1 seed\n" in said.err


def test_without_a_treatment_well_known_techniques_are_compared(assay: Assay, fake: Fake, corpus: str) -> None:
    said = assay("compare", "demo", corpus, *TINY, *ONCE, "--blocks", "2", "--json")
    assert said.code == 0, said.err
    names = ["sdpa_attention", "bf16_mixed", "activation_checkpointing"]
    assert [row["treatment"] for row in said.value["rows"]] == names
    told = f"No technique was named, so these are compared: {', '.join(names)}."
    assert said.err.index(told) < said.err.index("5 configurations × ")


def test_json_is_one_value_and_nothing_else(assay: Assay, fake: Fake, corpus: str) -> None:
    said = assay("compare", "demo", corpus, *DESIGN, "--json")
    assert said.code == 0, said.err
    assert [row["treatment"] for row in said.value["rows"]] == ["sdpa_attention", "bf16_mixed"]
    assert Path(said.value["page"]).exists()
    assert said.value["rows"][0]["metrics"]["tensors_peak_bytes"] == 1000
    assert said.value["rows"][0]["predicted"]["tensors_peak_bytes"] == 990


def test_the_page_goes_where_it_is_wanted(assay: Assay, fake: Fake, corpus: str, tmp_path: Path) -> None:
    said = assay("compare", "demo", corpus, *DESIGN, "--page", str(tmp_path / "mine.html"))
    assert said.out.splitlines()[-1] == str(tmp_path / "mine.html")


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_who_is_told_to_end_while_it_writes_shows_what_was_measured(
    assay: Assay, fake: Fake, corpus: str, monkeypatch: pytest.MonkeyPatch, asked: signal.Signals
) -> None:
    write, handlers = view.write_page, {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupted(*given: Any) -> Path:
        signal.raise_signal(asked)
        return write(*given)

    monkeypatch.setattr(view, "write_page", interrupted)
    try:
        said = assay("compare", "demo", corpus, *DESIGN)
        assert signal.getsignal(signal.SIGINT) is handlers[signal.SIGINT]
    finally:
        signal.signal(signal.SIGTERM, handlers[signal.SIGTERM])
    assert said.code == 0
    assert "bf16_mixed" in said.out
    assert Path(said.out.splitlines()[-1]).exists()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("no_effect", 3),
        ("wrong_values", 3),
        ("failed", 3),
        ("killed", 3),
        ("timed_out", 3),
        ("out_of_memory", 0),
        ("diverged", 0),
    ],
)
def test_failed_cells_exit_3_and_results_0(assay: Assay, fake: Fake, corpus: str, status: str, code: int) -> None:
    fake.behaves(status=status)
    said = assay(
        "compare",
        "demo",
        corpus,
        *TINY,
        "--with",
        "sdpa_attention",
        "--seeds",
        "1",
        "--processes",
        "1",
        "--blocks",
        "1",
    )
    assert said.code == code
    assert status.replace("_", " ") in said.out


def test_a_row_with_wrong_losses_says_so_in_the_table_and_exits_3(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves("wrong")
    ask = ("compare", "demo", corpus, *TINY, "--with", "sdpa_attention", "--seeds", "1", "--blocks", "1")
    said = assay(*ask)
    assert said.code == 3
    sentence = "the training loss of step 0 at seed 0 is 3.5, and the baseline's is 3; they differ by 17 %"
    assert said.out.startswith("sdpa_attention computed wrong values.")
    assert f"✗ sdpa_attention: wrong values: {sentence}, and the bound is 0.003 %" in said.out
    assert sentence in html.unescape(Path(said.out.splitlines()[-1]).read_text())
    (row,) = assay(*ask, "--json").value["rows"]
    assert (row["status"], row["reason"].startswith(sentence)) == ("wrong_values", True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--nproc", "2"), "nothing to compare"),
        (("--with", "sdpa_atention"), "did you mean 'sdpa_attention'"),
        (("--with", "sdpa_attention", "--with", "sdpa_attention"), "listed twice"),
        (("--with", "gradient_accumulation:micro_batches=5"), "micro"),
        (("--with", "sdpa_attention", "--seeds", "0"), "at least one seed"),
        (("--with", "sdpa_attention", "--blocks", "0"), "at least one timed block"),
        (("--with", "sdpa_attention", "--processes", "0"), "at least one process"),
        (("--with", "sdpa_attention", "--timeout", "-1"), "positive number of seconds"),
        (("--with", "sdpa_attention", "model.n_embd=10", "model.n_head=4"), "not divisible"),
        (("--with", "sdpa_attention", "--page", "no/such/folder/page.html"), "a folder that can be written"),
    ],
)
def test_bad_input_is_one_sentence_exits_2_and_writes_nothing(
    assay: Assay, fake: Fake, home: Home, corpus: str, words: tuple[str, ...], sentence: str
) -> None:
    said = assay("compare", "demo", corpus, *TINY, *words)
    assert said.code == 2
    assert sentence in said.sentence()
    assert not home.root.exists() or not [path for path in home.root.rglob("*") if path.is_file()]
