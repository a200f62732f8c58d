"""A run on two ranks, through the product: measured, killed in one rank, gone on with, and read by one device."""

import random
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from assay import api
from assay.config import Home
from assay.errors import STANDS, START_AGAIN, UsageError
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store import history
from assay.store.event_log import Event
from assay.store.index import Store
from assay.store.run_folder import RunFolder

STEPS = 12
SHAPE = ("model.n_layer=2", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "training.batch_size=4")
RUN = (*SHAPE, f"training.steps={STEPS}", "training.checkpoint_interval=4", "data.tokenizer=byte", "ranks=2")
RUN = (*RUN, "training.eval_interval=0", "training.eval_batches=1", "training.measure_memory=false", "threads=1")
MEASURED = "training.measure_memory=true"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("All happy families are alike. " * 200)
    return f"data.path={path}"


def losses(home: Home, result: RunResult) -> list[float]:
    return [step.loss for step in history.steps(RunFolder(home.runs / result.run).events())]


def weights(home: Home, result: RunResult) -> dict[str, torch.Tensor]:
    """Of the newest checkpoint."""
    return load_file(home.runs / result.run / "checkpoints" / f"step-{result.steps:08d}" / "model.safetensors")


def killing_the_other(step: int) -> api.Listener:
    """A listener that kills rank 1 with signal 9 once a step has been done."""
    first: list[psutil.Process] = []

    def hear(event: Event) -> None:
        if event["event"] == "start":
            first.append(psutil.Process(event["pid"]))
        if event["event"] == "step" and event["step"] == step:
            agent = first[0].parent()
            assert agent is not None
            (other,) = (one for one in agent.children() if one != first[0])
            other.kill()

    return hear


def killing_the_launcher() -> api.Listener:
    """A listener that kills what started the ranks, with signal 9."""
    launchers: list[psutil.Process | None] = []

    def hear(event: Event) -> None:
        if event["event"] == "start":
            launchers.append(psutil.Process(event["pid"]).parent())
        if event["event"] == "step" and event["step"] == 5:
            (launcher,) = launchers
            assert launcher is not None
            launcher.kill()

    return hear


def every_rank_is_on_record(result: RunResult) -> None:
    predicted = result.predicted
    assert predicted is not None
    assert [one.rank for one in result.ranks] == [0, 1]
    assert [one.place for one in result.ranks] == [{"dp": 0}, {"dp": 1}]
    assert [one.sent_bytes for one in result.ranks] == [one.sent_bytes for one in predicted.ranks]
    assert result.memory.tensors_peak_bytes == max(one.tensors_peak_bytes or 0 for one in result.ranks)
    assert (result.memory.heap_peak_bytes, result.memory.allocations) == (None, None)
    for one in result.ranks:
        assert one.communication_share is not None
        assert 0 < one.communication_share <= 1
        assert {(each.collective, each.axis, each.count) for each in one.spent} == {
            (each.collective, each.axis, each.count) for each in one.sent
        }
        assert all(each.wait_seconds is not None and each.wait_seconds <= each.seconds for each in one.spent)


def refused_it_keeps_what_it_had_trained(home: Home, result: RunResult) -> None:
    """Both ranks refuse at once, and the agent stops whichever is later: neither is what the user is told."""
    folder = RunFolder(home.runs / result.run)
    for place in folder.checkpoints.iterdir():
        (place / "model.safetensors").write_bytes(b"")
    refused = api.train(f"training.steps={2 * STEPS}", resume=result.run, home=home)
    assert refused.status is Status.FAILED
    assert refused.reason == f"every checkpoint in {folder.checkpoints} is damaged; {START_AGAIN}; {STANDS}"
    found = RunFolder(home.runs / result.run).result()
    assert found is not None
    assert found.model_dump() == result.model_dump(), "what is true of the run"
    assert (refused.steps, refused.train_loss) == (STEPS, result.train_loss)


@pytest.mark.usefixtures("forked")
def test_a_killed_rank_ends_the_run_which_goes_on_where_it_was(home: Home, text: str) -> None:
    killed = api.train("demo", *RUN, text, optimizations="fully_sharded", home=home, on_event=killing_the_other(6))
    assert killed.status is Status.KILLED
    assert killed.reason is not None
    assert killed.reason.startswith("rank 1 was killed by signal 9 (SIGKILL); its log is ")
    assert Path(killed.reason.rpartition(" ")[2]).is_file()
    assert 4 <= killed.steps < STEPS
    resumed = api.train(resume=killed.run, home=home)
    assert (resumed.status, resumed.steps) == (Status.DONE, STEPS)
    whole = api.train("demo", *RUN, MEASURED, text, optimizations="fully_sharded", home=home)
    assert losses(home, resumed) == losses(home, whole)
    assert whole.evidence
    assert all(one.verdict for one in whole.evidence)
    every_rank_is_on_record(whole)
    # Its checkpoint is an ordinary one: one device starts from it.
    alone = api.train("demo", *RUN, text, f"model.init_from={whole.run}", "training.steps=1", "ranks=1", home=home)
    assert alone.status is Status.DONE
    assert alone.train_loss == pytest.approx(whole.train_loss, rel=0.2)
    refused_it_keeps_what_it_had_trained(home, whole)


@pytest.mark.usefixtures("forked")
def test_a_killed_launcher_is_named(home: Home, text: str) -> None:
    endless = "training.steps=100000"
    killed = api.train(
        "demo", *RUN, text, endless, optimizations="data_parallel", home=home, on_event=killing_the_launcher()
    )
    assert killed.status is Status.KILLED
    assert killed.reason is not None
    assert killed.reason.startswith("the launcher of its ranks was killed by signal 9")
    assert killed.steps >= 5
    assert [entry.status for entry in Store(home).entries().values()] == [Status.KILLED]


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_run_goes_on_divided_in_another_way_and_on_one_device(home: Home, text: str) -> None:
    first, second = random.randrange(4, 7), random.randrange(8, 11)
    stack = "data_parallel+sdpa_attention"
    killed = api.train("demo", *RUN, text, optimizations=stack, home=home, on_event=killing_the_other(first))
    assert killed.status is Status.KILLED
    other = "tensor_parallel"
    again = api.train(resume=killed.run, optimizations=other, home=home, on_event=killing_the_other(second))
    assert again.status is Status.KILLED
    said: list[Event] = []
    alone = api.train("ranks=1", resume=killed.run, home=home, on_event=said.append)
    assert (alone.status, alone.steps) == (Status.DONE, STEPS), alone.reason
    assert [one.name for one in alone.config.optimizations] == ["sdpa_attention"]
    whole = api.train("demo", *RUN, text, "ranks=1", optimizations="sdpa_attention", home=home)
    cut = f"rank 1 was killed after the steps {first} and {second}"
    assert losses(home, alone) == pytest.approx(losses(home, whole), rel=1e-5), cut
    notes = [event["text"] for event in said if event["event"] == "note"]
    assert [note.partition(" was ")[2] for note in notes] == [
        "written on tp=2 and is read on one device: losses agree within rounding, and dropout draws other masks"
    ], cut


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_divided_experts_go_on_from_their_checkpoint_and_are_whole_in_it(home: Home, text: str) -> None:
    mixture = (*RUN, text, "model.n_expert=4")
    stack = "expert_parallel+data_parallel"
    stopped = api.train("demo", *mixture, "training.tokens=384", optimizations=stack, home=home)
    assert (stopped.status, stopped.steps) == (Status.BUDGET_REACHED, 6)
    resumed = api.train("training.tokens=100000", resume=stopped.run, home=home)
    assert (resumed.status, resumed.steps) == (Status.DONE, STEPS)
    alone = api.train("demo", *mixture, "ranks=1", home=home)
    assert losses(home, resumed) == pytest.approx(losses(home, alone), rel=1e-5)
    assert resumed.val_loss == pytest.approx(alone.val_loss, rel=1e-5)
    # The last six steps' choices, of all ranks' tokens.
    assert [sum(layer.tokens) for layer in resumed.loss.routers] == [6 * 4 * 16 * 2] * 2
    here, there = (weights(home, one) for one in (resumed, alone))
    assert here.keys() == there.keys()
    for name in there:
        if ".experts." in name:
            assert torch.allclose(here[name], there[name], rtol=1e-3, atol=1e-5), name


@pytest.mark.usefixtures("forked")
def test_idle_time_of_a_pipeline_is_on_record_beside_its_prediction(home: Home, text: str) -> None:
    ragged = "training.eval_batches=null"  # all held-out text, which ends inside a window
    result = api.train("demo", *RUN, MEASURED, ragged, text, optimizations="pipeline_parallel:split=1-1", home=home)
    assert result.val_loss is not None
    assert result.predicted is not None
    assert result.predicted.bubble_share == pytest.approx(0.2)
    for one, said in zip(result.ranks, result.predicted.ranks, strict=True):
        assert one.idle is not None
        assert one.idle.share == sorted(one.idle.shares)[1]
        assert len(one.idle.shares) == 3
        assert one.idle.processor_share is not None
        assert bool(one.idle.caveat) is not one.idle.comparable
        assert said.idle_share is not None
        counts = {(each.collective, each.axis): each.count for each in one.spent}
        assert counts["send", "pp"] == counts["recv", "pp"] == 4
        assert all(each.wait_seconds is not None for each in one.spent)
    assert result.ranks[0].idle.comparable is result.ranks[1].idle.comparable  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("stack", "changes", "says"),
    [
        ("data_parallel", ["ranks=1"], "divides nothing"),
        ("tensor_parallel:degree=3", ["ranks=2"], "a multiple of 3 ranks"),
        ("tensor_parallel", ["model.n_head=1"], "does not divide the model's 1 key/value heads"),
        ("pipeline_parallel", ["model.n_layer=3"], "do not divide the model's 3 blocks"),
        ("pipeline_parallel:schedule=interleaved", ["pipeline=1"], "unknown key"),
        (
            "pipeline_parallel:split=3-1",
            [],
            "split=3-1 gives 4 blocks to 2 stages, and the run has 2 blocks and 2 stages",
        ),
        ("pipeline_parallel:split=1-1,schedule=interleaved", [], "2 blocks and 4 stages"),
        ("pipeline_parallel:split=2-0", [], "split='2-0' is not possible"),
        ("pipeline_parallel+gradient_accumulation", [], "both replace the step's micro_batches"),
        ("data_parallel+fully_sharded", [], "both replace the step's replicas"),
        ("data_parallel", ["training.batch_size=3"], "cannot be divided among dp=2 ranks"),
        ("data_parallel", ["ranks=4096", "training.batch_size=4096"], "need 4096 cores"),
    ],
)
def test_an_impossible_division_is_refused(home: Home, text: str, stack: str, changes: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        api.train("demo", *RUN, text, *changes, optimizations=stack, home=home)
    assert not home.root.exists()
