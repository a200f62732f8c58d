"""The library of published studies: every study can run, repeats rows that its document has, and holds what it says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.analysis.claims import check_expectations, check_published, recompute_changes
from assay.api.configuration import configure
from assay.config import Home
from assay.config.run import ResolvedRun
from assay.data.progress import silent
from assay.errors import UsageError
from assay.hardware import detect
from assay.records.published import PublishedStudy
from assay.records.study import Stated
from assay.studies.base import Study
from assay.studies.design import Treatment, able
from assay.studies.documents import documents, with_published
from assay.studies.library import entry, find_study_file, names
from assay.studies.outlook import outlook
from assay.studies.reading import read_study, scales

SCALES = [(name, scale) for name in names() for scale in scales(find_study_file(name))]
ABSENT = {
    ("precision-ladder", "full"): {"tf32"},
    ("precision-ladder", "small"): {"tf32"},
    ("lecture-ladder", "full"): {"rung=fully sharded, checkpointing and offloading"},
    ("lecture-ladder", "small"): {"rung=fully sharded, checkpointing and offloading"},
    ("gpt124m-ladder", "full"): {"rung=tensor cores, batch 28", "rung=no synchronization, batch 28"},
    ("gpt124m-ladder", "small"): {"rung=tensor cores, batch 28"},
    ("wikitext-recipe-attention", "full"): {
        "optimizations=sdpa_attention, training.batch_size=32",
        "optimizations=sdpa_attention, training.batch_size=64",
    },
}
"""Rows that a CPU cannot run."""
WITHOUT_A_DOCUMENT = {"speedrun-attribution", "transfer"}
"""Studies with a question of their own."""
CONTRADICTED = {("fahey", "Embeddings x2, None", "Training Time (s)", "+120.7 %")}
"""Printed changes that the document's own table contradicts, with the change by the table."""


def study(name: str, scale: str) -> Study:
    return read_study(find_study_file(name), scale, ("device=cpu",))


def rows(name: str, scale: str = "full") -> dict[str, Treatment]:
    one = study(name, scale)
    return {row.label: row for row in one.rows(configure(one.base, one.overrides))}


def runs(name: str, factor: str, scale: str = "full") -> Iterator[tuple[str, ResolvedRun]]:
    """Level of a factor and run of each row."""
    yield from ((row.levels[factor], row.run) for row in rows(name, scale).values())


def table(name: str) -> PublishedStudy:
    return PublishedStudy.model_validate(with_published({"library": name}))


def test_each_study_asks_something_of_a_document_and_has_a_small_scale() -> None:
    assert {name for name, scale in SCALES if scale == "small"} == set(names())
    for name in names():
        one = entry(name).study
        assert one.question.endswith("?")
        assert one.expects or one.by_chance  # rows that are drawn have no labels of which to expect something
        if name not in WITHOUT_A_DOCUMENT:
            assert one.published is not None
            assert one.published.wrong


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_row_can_run_or_is_known_to_need_another_machine(name: str, scale: str) -> None:
    one = study(name, scale)
    cells = one.cells(configure(one.base, (*one.overrides, "oversubscribe=true")))
    kept, notes = able(cells)
    gone = {cell.treatment for cell in cells} - {cell.treatment for cell in kept}
    assert gone == ABSENT.get((name, scale), set())
    assert len(notes) == len(gone)
    every = {cell.treatment for cell in cells}
    check_expectations(one.expects, every, {factor.key: factor.levels for factor in one.factors()})
    check_published(one.published, every)


def test_rows_over_more_ranks_than_the_machine_has_room_for_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study("lecture-ladder", "small")
    alone = detect().model_copy(update={"cores": 1})
    monkeypatch.setattr("assay.studies.design.detect", lambda: alone)
    kept, notes = able(one.cells(configure(one.base, one.overrides)))
    assert not any("fully sharded" in cell.treatment for cell in kept)
    assert "2 ranks need 2 cores, and this machine has 1" in notes[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_plan_has_no_impossible_row(name: str, scale: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 2000)
    one = read_study(
        find_study_file(name),
        scale,
        (f"data.path={tmp_path / 'corpus.txt'}", "data.tokenizer=char", "oversubscribe=true"),
    )
    found = outlook(one, configure(one.base, one.overrides), Home(tmp_path / "home"), silent)
    assert [row.problem for row in found.rows if row.problem and not row.unavailable] == []


@pytest.mark.parametrize("name", documents())
def test_printed_changes_add_up_except_those_that_are_known_not_to(name: str) -> None:
    wrong = {
        (name, one.printed.row, one.printed.column, f"{100 * one.change:+.1f} %")
        for one in recompute_changes(table(name))
        if one.contradicted
    }
    assert wrong == {one for one in CONTRADICTED if one[0] == name}


def test_the_first_documents_dead_methods_end_at_the_same_loss_in_each_shape() -> None:
    losses: dict[str, set[float | None]] = {}
    for row in table("walsh-2023").rows:
        if not row.name.startswith("Reducing"):
            losses.setdefault(row.name.partition("(")[2], set()).add(row.figures[2])
    assert losses == {"Heads)": {1.7}, "Embeddings)": {1.4374}, "Layers)": {1.7106}}


@pytest.mark.parametrize("name", names())
def test_a_wrong_label_in_a_published_table_is_an_error(name: str) -> None:
    one = entry(name).study
    found = one.published
    if found is None or not any(row.row for row in found.rows):
        return
    every = {row.row for row in found.rows if row.row}
    for label in every:
        with pytest.raises(UsageError, match="published names the row"):
            check_published(found, every - {label})
    last = sorted(every)[-1]
    changed = [row.model_copy(update={"row": f"{last}x"}) if row.row == last else row for row in found.rows]
    with pytest.raises(UsageError, match="did you mean"):
        check_published(found.model_copy(update={"rows": tuple(changed)}), every)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"library": "fahy"}, "has no document 'fahy'; did you mean 'fahey'"),
        ({"library": "fahey", "repeats": {"Default, Nine": "baseline"}}, "did you mean 'Default, None'"),
        ({"library": "fahey", "repeat": {}}, "the key 'repeat' is unknown; did you mean 'repeats'"),
        ({"document": "x", "columns": [{"name": "a"}], "rows": [{"name": "r", "figures": [1, 2]}]}, "for 1 columns"),
        ({"document": "x", "columns": [{"name": "a"}], "rows": [{"name": "r", "figures": [1]}]}, "needs a control"),
        (
            {"document": "x", "control": "s", "columns": [{"name": "a"}], "rows": [{"name": "r", "figures": [1]}]},
            "control names 's', which the table does not have",
        ),
    ],
)
def test_a_faulty_document_is_refused(written: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PublishedStudy.model_validate(with_published(written))


def test_two_published_rows_cannot_be_one_of_ours() -> None:
    mapped = {"Default, None": "baseline", "Default, Float 16": "baseline"}
    with pytest.raises(ValueError, match="'baseline' twice"):
        PublishedStudy.model_validate(with_published({"library": "fahey", "repeats": mapped}))


def matrices(run: ResolvedRun) -> int:
    """Parameters of the blocks' matrices."""
    model = run.model
    return model.n_layer * (4 * model.n_embd**2 + 2 * model.n_embd * model.hidden)


def forward(run: ResolvedRun) -> float:
    """Multiplications of the forward pass of a whole run, without factors that are the same in all of them."""
    model = run.model
    attention = 2 * model.n_layer * model.context_length * model.n_embd
    return (matrices(run) + attention + 65 * model.n_embd) * run.training.steps


@pytest.mark.parametrize("scale", ["full", "small"])
def test_shapes_are_of_equal_size_where_they_say_so(scale: str) -> None:
    assert {matrices(run) for _, run in runs("aspect-ratio", "shape", scale)} == {786_432}
    fixed = [row for row in rows("cpu-fifteen-fixed", scale).values() if row.levels["method"] == "none"]
    for row in fixed[1:]:
        name = row.levels["shape"]
        if "equal parameters" in name:
            assert matrices(row.run) == matrices(fixed[0].run)
        if "equal FLOPs" in name:
            assert forward(row.run) == pytest.approx(forward(fixed[0].run), rel=0.01)


@pytest.mark.parametrize(
    ("name", "factor", "scale"),
    [
        ("batch-sweet-spot", "batch", "full"),
        ("batch-sweet-spot", "batch", "small"),
        ("wikitext-recipe-rates", "training.batch_size", "full"),
        ("wikitext-recipe-rates", "training.batch_size", "small"),
    ],
)
def test_tokens_are_equal_where_they_say_so(name: str, factor: str, scale: str) -> None:
    found = [(level, run.training.steps * run.tokens_per_step) for level, run in runs(name, factor, scale)]
    equal = [tokens for level, tokens in found if "iterations" not in level]
    assert equal == pytest.approx([found[0][1]] * len(equal), rel=0.01)


def test_a_longer_context_sees_as_many_tokens_in_the_corrected_study() -> None:
    for scale in ("full", "small"):
        found = [
            row.run.training.steps * row.run.tokens_per_step
            for row in rows("gpu-twenty-four-fixed", scale).values()
            if "smaller_batch" not in row.label
        ]
        assert found == pytest.approx([found[0]] * len(found), rel=0.001)


def test_dead_treatments_are_placebos_and_run_the_control_of_their_shape() -> None:
    found = rows("cpu-fifteen")
    assert len(found) == 15
    for row in found.values():
        if row.levels["method"].startswith("placebo"):
            assert row.placebo
            untreated = f"shape={row.levels['shape']}, method=none"
            assert row.run == found["baseline" if untreated not in found else untreated].run


def test_checkpointing_can_be_on_in_all_runs_as_the_first_author_says() -> None:
    one = read_study(find_study_file("cpu-fifteen"), "full", ("optimizations=activation_checkpointing",))
    for row in one.rows(configure(one.base, one.overrides)):
        assert [spec.name for spec in row.run.optimizations] == ["activation_checkpointing"]


def test_a_study_states_its_document_in_every_record() -> None:
    one = study("gpu-twenty-four", "small")
    assert one.name == "gpu-twenty-four (small)"
    stated = Stated.model_validate_json(Stated(**one.stated()).model_dump_json())
    assert stated.published == one.published
