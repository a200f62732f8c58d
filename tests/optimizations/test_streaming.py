"""Streamed documents under a step: trained on in order, resumed at their place, proven, and refused with a reason."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.config import Run, Spec
from assay.data.tokenizers import ByteTokenizer
from assay.hardware import Machine
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, Unavailable, check, optimizations_of, resolve
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.build import baseline, build
from assay.training.checkpoints import checkpoint
from assay.training.loop import train_step
from assay.training.step_record import Position
from support.random_data import RandomData
from support.runs import SHAPE, run_with
from support.steps import traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
OTHERS = (Spec(name="smaller_batch", fields={"factor": 2}), Spec(name="gradient_accumulation"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "documents"
    place.mkdir()
    texts = [f"{n} bottles of milk stand on the wall, {n * n % 97} of them are green." for n in range(40)]
    (place / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return place


def streaming(folder: Path, *others: Spec) -> Run:
    model = SHAPE.model_copy(update={"vocab_size": 256})
    return run_with(Spec(name="streaming", fields={"path": str(folder)}), *others, model=model)


def step_of(run: Run) -> Step:
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    program = replace(program, encode=lambda text: [ByteTokenizer().encode(text)])
    for one in optimizations_of(run):
        program = one.apply(program, run)
    return build(program)


def trace_of(run: Run) -> Trace:
    step = step_of(run)
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    return tracer.trace(record.loss, record.tokens)


def test_rows_follow_each_other_in_the_text(folder: Path) -> None:
    ((ids, targets),) = step_of(streaming(folder)).program.batches(0, (0, 1))
    assert (
        bytes(ids.flatten().tolist()).decode().startswith("0 bottles of milk stand on the wall, 0 of them are green.")
    )
    assert ids.flatten()[1:].equal(targets.flatten()[:-1])


def test_a_resumed_step_goes_on_where_the_documents_were_left(folder: Path, tmp_path: Path) -> None:
    run = streaming(folder)
    step, again = step_of(run), step_of(run)
    for index in range(5):
        train_step(step, index)
    checkpoint.save(tmp_path, step, Position(5), "any")
    position, _ = checkpoint.resume(tmp_path, again)
    assert position.step == 5
    places = again.program.stateful["documents"].state_dict()["places"]
    assert [5, *places[-1][1:]] == places[-1] != [5, 0, 0, 0]
    assert [train_step(again, i).loss for i in (5, 6)] == [train_step(step, i).loss for i in (5, 6)]


@pytest.mark.parametrize("others", [(), OTHERS[:1], OTHERS[1:]], ids=["alone", "smaller batch", "accumulation"])
def test_it_is_proven_alone_and_beside_others(folder: Path, others: tuple[Spec, ...]) -> None:
    run = streaming(folder, *others)
    trace = trace_of(run)
    for one in optimizations_of(run):
        evidence = one.verify(trace, run)
        assert evidence.verdict, evidence.observed
    assert trace.batch.sequences == run.sequences_per_step


def test_the_proof_fails_where_prepared_tokens_were_read(folder: Path) -> None:
    run = streaming(folder)
    evidence = optimizations_of(run)[0].verify(traced(run_with()), run)
    assert evidence.observed.startswith("0 of 4 sequences packed from streamed documents; the step waited ")
    assert not evidence.verdict


def test_a_text_that_cannot_be_streamed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(streaming(folder), CPU)
    (here,) = streaming(Path("documents")).optimizations
    assert here.fields["path"] == str(Path.cwd() / "documents")
    for fields, says in (
        ({}, "set streaming:path=FOLDER or streaming:dataset=NAME"),
        ({"path": str(folder), "dataset": "some/thing"}, "streaming:dataset selects .* leave one out"),
        ({"path": str(folder), "split": "test"}, "streaming:split selects .* leave one out"),
    ):
        with pytest.raises(Conflict, match=says):
            check(run_with(resolve(Spec(name="streaming", fields=fields)).spec()), CPU)
    with pytest.raises(Conflict, match="both replace the step's reading of batches"):
        check(streaming(folder, Spec(name="loader_workers")), CPU)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'assay\[hf\]'"):
        check(run_with(Spec(name="streaming", fields={"dataset": "some/thing"})), CPU)


def test_folders_are_kept_whole_for_a_run_that_goes_on_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for field in ("path", "dataset"):
        assert getattr(resolve(Spec(name="streaming", fields={field: folder.name})), field) == str(folder)
    named = resolve(Spec(name="streaming", fields={"dataset": "someone/a-set"}))
    assert named.dataset == "someone/a-set"
