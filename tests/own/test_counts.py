"""The tagger of docs/own-model.md, whose loss counts some of the targets, and losses that do not add up: real runs."""

import re
from pathlib import Path

import pytest

import assay
from assay.api.result_types import TrainedRun
from assay.config import validate
from assay.config.run import OwnRows, ResolvedRun
from assay.model.own_model import own_batches
from assay.optimizations import resolve_run
from assay.store.run_folder import RunFolder
from support.docs import DOCS

PAGE = (DOCS / "own-model.md").read_text(encoding="utf-8")
TAGGER = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[-1]
OTHERS = """

def mean_of(model, words, wanted, left_out):
    return functional.cross_entropy(model(words).flatten(0, 1), wanted.flatten(), ignore_index=left_out)


def mean():
    return assay.OwnModel(Tagger(), lambda model, words, tags: mean_of(model, words, tags, NO_TAG), tagged, held_out)


def padded():
    zeros = lambda model, words, tags: mean_of(model, words, tags.clamp(min=0), 0)
    return assay.OwnModel(Tagger(), zeros, tagged, held_out)


def contrastive():
    def contrast(model, words, tags):
        made = functional.normalize(model(words).flatten(1), dim=1)
        return functional.cross_entropy(made @ made.roll(1, dims=1).T, torch.arange(len(words)))

    return assay.OwnModel(Tagger(), contrast, tagged, held_out)


def wrong(count):
    def loss(model, words, tags):
        summed, counted = counted_loss(model, words, tags)
        return summed, counted * count

    return assay.OwnModel(Tagger(), loss, tagged, held_out)


def negative():
    return wrong(-1)


def undefined():
    return wrong(float("nan"))


def unlabelled():
    def some(step, seed, rows):
        words, tags = tagged(step, seed, rows)
        return words, torch.full_like(tags, NO_TAG) if step == 4 else tags

    return assay.OwnModel(Tagger(), counted_loss, some, held_out)


def unlabelled_held_out():
    nothing = lambda rows: [(words, torch.full_like(tags, NO_TAG)) for words, tags in held_out(rows)]
    return assay.OwnModel(Tagger(), counted_loss, tagged, nothing)
"""
CUT = "gradient_accumulation"
ROWS, LONGEST = 16, 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the page's file, and a short text, so that no long one is prepared."""
    (tmp_path / "tagger.py").write_text(TAGGER + OTHERS)
    (tmp_path / "text.txt").write_text("Some words, again and again. " * 200)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(name: str, folder: Path, *more: str, optimizations: str = CUT) -> TrainedRun:
    short = ("training.steps=6", f"training.batch_size={ROWS}", "training.warmup_steps=2")
    text = f"data.path={folder / 'text.txt'}"
    home = folder / "home"
    return assay.train(f"tagger.py:{name}", *short, text, *more, optimizations=optimizations or (), home=home)


def tags_of(folder: Path, steps: int) -> list[int]:
    """The number of labels of each step's batch that are not left out, counted one by one."""
    model = {"own": "tagger.py:tagger", "own_folder": str(folder), "vocab_size": 61, "context_length": 16}
    rows = OwnRows(targets=LONGEST, validation=True)
    run = resolve_run(validate({"model": model, "training": {"batch_size": ROWS}})).model_copy(
        update={"own_rows": rows}
    )
    own = own_batches(ResolvedRun.model_validate(run))
    assert own is not None
    return [sum(label >= 0 for row in own.at(step)[1].tolist() for label in row) for step in range(steps)]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("name", "stack"),
    [
        pytest.param(name, stack, marks=() if (name == "mean") is (stack == "fused_adamw") else pytest.mark.slow)
        for name in ("tagger", "mean")
        for stack in ("fused_adamw", f"smaller_batch+{CUT}:micro_batches=2+bf16_mixed", f"{CUT}+deferred_metrics")
    ],
)
def test_a_run_counts_what_its_loss_counts(folder: Path, name: str, stack: str) -> None:
    run = trained(name, folder, optimizations=stack)
    assert run.status.value == "done", run.reason
    assert run.values is not None
    assert run.values.verdict, run.values
    assert all(one.verdict for one in run.evidence)
    if "smaller_batch" not in stack:
        assert run.tokens == sum(tags_of(folder, 6))
    assert run.val_targets == run.val_split_targets
    assert 500 * 2 < (run.val_targets or 0) < 500 * LONGEST


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", ["padded", "contrastive"])
def test_a_loss_that_does_not_add_up_ends_its_run(folder: Path, name: str) -> None:
    run = trained(name, folder)
    assert run.status.value == "wrong_values"
    assert (run.reason or "").startswith("the loss does not add up over rows: in step 0 it is ")
    assert "return (sum, count), or do not accumulate" in (run.reason or "")
    assert trained(name, folder, optimizations="fused_adamw").status.value == "done"


@pytest.mark.usefixtures("forked")
def test_a_budget_is_spent_by_counted_targets(folder: Path) -> None:
    counted = tags_of(folder, 40)
    budget = sum(counted[:20]) + 1
    run = trained("tagger", folder, f"training.tokens={budget}", "training.steps=40", optimizations="")
    assert (run.status.value, run.steps, run.tokens) == ("budget_reached", 21, sum(counted[:21]))
    steps = [event for event in RunFolder(folder / "home" / "runs" / run.run).events() if event.event == "step"]
    assert [event.tokens for event in steps] == counted[:21]
    blocks = [event for event in RunFolder(folder / "home" / "runs" / run.run).events() if event.event == "block"]
    steady = [event.tokens for event in steps if event.phase == "steady"]
    assert sum(block.tokens for block in blocks) == sum(steady)
    assert run.step_seconds is not None
    mean = round(sum(steady) / len(steady))
    assert run.tokens_per_second == pytest.approx(mean / run.step_seconds.median)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("negative", "counted -"),
        ("undefined", "counted nan targets in step 0; a count is zero or more"),
        ("unlabelled", "no target counts in step 4: the loss leaves out all labels of its batch"),
        ("unlabelled_held_out", "no held-out target counts: the loss leaves out all labels of the validation batches"),
    ],
)
def test_a_count_that_cannot_be_ends_its_run_with_a_sentence(folder: Path, name: str, says: str) -> None:
    run = trained(name, folder, optimizations="fused_adamw")
    assert run.status.value == "failed"
    assert says in (run.reason or "")
