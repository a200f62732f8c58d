"""`assay study library`, and studies that are planned and run by name, at a scale and with overrides."""

from pathlib import Path

import pytest

from assay.config import Home
from assay.data import published
from assay.studies.execution import ready
from assay.studies.library import names
from support.children import Fake

from .conftest import TINY, Assay

PUBLISHED = """
published:
  document: A document of long ago
  place: Table 1
  setup: a machine that is gone
  control: plain
  columns: [{name: Memory (GB), metric: tensors_peak_bytes, digits: 1}]
  rows:
    - {name: plain, row: baseline, figures: [4.0]}
    - {name: with Lion, row: lion, figures: [3.0]}
    - {name: with TensorFloat, row: tf32, figures: [4.0]}
  printed: [{row: with Lion, against: plain, column: Memory (GB), printed: "-75 %"}]
  wrong: [It was run once.]
"""


def test_the_list_has_every_study(assay: Assay) -> None:
    said = assay("study", "library")
    assert said.code == 0, said.err
    lines = [line.split("\t") for line in said.out.splitlines()]
    assert lines[0] == ["study", "kind", "rows", "question", "document"]
    assert [line[0] for line in lines[1:]] == names()
    fifteen = next(line for line in lines if line[0] == "cpu-fifteen")
    assert fifteen[1:3] == ["factorial", "15"]
    assert "Walsh" in fifteen[4]
    assert [one["name"] for one in assay("study", "library", "--json").value] == names()


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_text_that_cannot_be_downloaded_is_a_sentence_with_the_command_on_a_local_file(
    assay: Assay, fake: Fake, monkeypatch: pytest.MonkeyPatch, corpus: str, verb: str
) -> None:
    def offline(*_: object) -> bytes:
        raise OSError("no route to host")

    def measured(*_: object, **__: object) -> None:
        pytest.fail("rates are measured before the text is looked for")

    monkeypatch.setattr(published, "_retrieve", offline)
    monkeypatch.setattr(ready, "measured_machine", measured)
    words = ("study", verb, "cpu-fifteen", "--scale", "small", "training.steps=4")
    said = assay(*words)
    assert said.code == 2
    command = f"assay {' '.join(words[:5])} training.steps=4 data.path=FILE"
    assert said.sentence().endswith(f"input.txt could not be downloaded; give a local file: `{command}`")
    if verb == "plan":
        assert assay(*words, corpus).code == 0


def test_one_study_shows_its_table_and_what_the_table_contradicts(assay: Assay) -> None:
    said = assay("study", "library", "gpu-twenty-four").out
    assert "Embeddings x2, None\t5.94\t529.70\t0.3195\tshape=embeddings x2, optimizations=none" in said
    assert "The text prints +151 %" in said
    assert "by its own table the change is +120.7 %" in said
    assert said.count("The text prints") == 1
    assert "small\t24\t3\tshakespeare-char-cpu" in said
    found = assay("study", "library", "gpu-twenty-four", "--json").value
    (wrong,) = [one for one in found["published"]["printed"] if one["contradicted"]]
    assert wrong["by_the_table"] == pytest.approx(1.2074, abs=1e-4)
    assert found["scales"]["small"]["seeds"] == 3


@pytest.mark.parametrize("command", [("library",), ("plan",), ("run",)])
def test_an_unknown_name_is_a_sentence(assay: Assay, home: Home, command: tuple[str, ...]) -> None:
    said = assay("study", *command, "cpu-fiften")
    assert said.code == 2
    assert "did you mean 'cpu-fifteen'" in said.sentence()
    assert not home.root.exists()


def test_a_study_is_planned_by_name_at_a_scale_with_overrides(assay: Assay, home: Home, corpus: str) -> None:
    words = ("study", "plan", "precision-ladder", corpus, *TINY, "data.tokenizer=byte", "device=cpu")
    said = assay(*words, "--scale", "small", "--json")
    assert said.code == 0, said.err
    assert (said.value["base"], said.value["seeds"]) == ("shakespeare-char-cpu", 3)
    assert said.value["name"] == "precision-ladder (small)"
    rows = {row["label"]: row for row in said.value["rows"]}
    assert list(rows) == ["baseline", "tf32", "bf16_mixed", "fp16_mixed", "bf16_full", "fp16_full", "fp8"]
    assert rows["tf32"]["unavailable"]
    assert "fp8 needs sizes in multiples of 16" in rows["fp8"]["problem"]
    assert [row["problem"] for name, row in rows.items() if name not in {"tf32", "fp8"}] == [None] * 5
    said = assay(*words, "--scale", "smal")
    assert "has no scale 'smal'; did you mean 'small'" in said.sentence()
    assert "did you mean 'training.steps'" in assay("study", "plan", "precision-ladder", "training.step=1").sentence()


def test_a_row_that_this_machine_lacks_is_left_out_and_the_document_is_beside(
    assay: Assay, fake: Fake, home: Home, corpus: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    overrides = ", ".join((*TINY, "device=cpu"))
    text = f"kind: comparison\noverrides: [{overrides}]\nseeds: 1\nblocks: 1\ntreatments: [tf32, lion]\n{PUBLISHED}"
    path.write_text(text)
    said = assay("study", "run", str(path), corpus, "--full")
    assert said.code == 0, said.err
    assert "tf32 was left out, because this machine cannot run it: tf32 is a format of" in said.out
    assert "Published against ours" in said.out
    assert "Memory (GB)\twith Lion\t3.0\t−25.0 %\t" in said.out
    assert "Memory (GB)\twith TensorFloat\t4.0\t0.0 %\t–\t–" in said.out
    assert "The text prints -75 % for Memory (GB) of 'with Lion' against 'plain'; by its own table" in said.out
    assert "– It was run once." in said.out
    page = Path(said.out.splitlines()[-1]).read_text()
    for words in (
        "published changes go the same way here",
        "A document of long ago",
        "a machine that is gone",
        "with Lion",
    ):
        assert words in page
    assert "mine · " in page
    assert [one["name"] for one in assay("study", "ls", "--json").value] == ["mine"]
    shown = assay("study", "show", "last", "--json").value["sections"]["published"]
    assert [one["name"] for one in shown["rows"]] == ["plain", "with Lion", "with TensorFloat"]
    assert shown["printed"][0]["contradicted"]
    path.write_text(text.replace("row: lion", "row: lyon"))
    assert "published names the row 'lyon'" in assay("study", "run", str(path), corpus).sentence()


def test_a_control_that_this_machine_lacks_is_an_error(assay: Assay, home: Home, corpus: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    overrides = ", ".join((*TINY, "device=cpu", "optimizations=tf32"))
    path.write_text(f"kind: factorial\noverrides: [{overrides}]\nseeds: 1\nvary: {{optimizations: [none, lion]}}\n")
    assert "tf32 is a format of NVIDIA's tensor cores" in assay("study", "run", str(path), corpus).sentence()
