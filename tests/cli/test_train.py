"""`assay train`: what comes out, how it exits, and that bad input leaves nothing behind."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from assay.api import training
from assay.config import Home
from assay.records.run import Branch
from assay.records.status import Status
from assay.store.run_folder import RunFolder
from cli.conftest import TINY, Assay
from support.children import Fake

KEYS = {
    "run", "status", "steps", "tokens", "train_loss", "val_loss", "tokens_per_second", "step_seconds", "phase_seconds",
    "memory", "predicted", "evidence", "environment",
}  # fmt: skip


def test_json_is_one_value_with_the_promised_keys(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    said = assay("train", corpus, *TINY, "--json")
    assert said.code == 0
    assert set(said.value) >= KEYS
    assert said.value["status"] == "done"
    assert (said.value["steps"], said.value["tokens"]) == (4, 64)
    assert said.value["config"]["model"]["vocab_size"] == 256
    assert (home.runs / said.value["run"] / "result.json").exists()


def test_the_summary_says_where_the_run_lies(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    said = assay("train", "demo", corpus, *TINY, "--with", "sdpa_attention")
    assert said.code == 0
    (folder,) = home.runs.iterdir()
    assert str(folder) in said.out
    assert "sdpa_attention" in said.out
    assert "1000 B" in said.out
    assert "990 B" in said.out, "the prediction stands beside what was measured"
    assert "step 4/4" in said.err


def test_the_tokens_of_the_run_that_is_done_are_announced(assay: Assay, fake: Fake, corpus: str) -> None:
    """A smaller batch trains on fewer than the configuration asks for."""
    said = assay("train", corpus, *TINY, "training.batch_size=4", "--with", "smaller_batch:factor=2")
    assert "4 steps of 16 tokens" in said.err


def test_a_listener_that_fails_costs_no_work(home: Home, fake: Fake, corpus: str) -> None:
    from assay import api

    def fails(event: dict[str, object]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            raise BrokenPipeError

    fake.behaves("slow")
    with pytest.raises(BrokenPipeError):
        api.train(corpus, *TINY, "training.steps=1000", on_event=fails)
    (folder,) = map(RunFolder, home.runs.iterdir())
    result = folder.result()
    assert result is not None
    assert result.status is Status.INTERRUPTED
    assert folder.newest_checkpoint() is not None


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("done", 0),
        ("failed", 1),
        ("unavailable", 2),
        ("no_effect", 3),
        ("wrong_values", 3),
        ("diverged", 3),
        ("out_of_memory", 3),
        ("budget_reached", 4),
        ("interrupted", 130),
    ],
)
def test_the_exit_code_says_how_it_ended(assay: Assay, fake: Fake, corpus: str, status: str, code: int) -> None:
    fake.behaves(status=status)
    said = assay("train", corpus, *TINY, "--json")
    assert (said.code, said.value["status"]) == (code, status)


def test_a_killed_child_exits_three(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves("die2")
    said = assay("train", corpus, *TINY)
    assert said.code == 3
    assert "killed by signal 9" in said.out
    assert "--resume" in said.out


def test_a_time_out_exits_three(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves("slow")
    said = assay("train", corpus, *TINY, "training.steps=1000", "--timeout", "0.5", "--json")
    assert (said.code, said.value["status"]) == (3, "timed_out")


def test_with_adds_up(assay: Assay, fake: Fake, corpus: str) -> None:
    stack = ("--with", "gradient_accumulation:micro_batches=2", "--with", "sdpa_attention")
    names = [spec["name"] for spec in assay("train", corpus, *TINY, *stack, "--json").value["config"]["optimizations"]]
    assert names == ["sdpa_attention", "gradient_accumulation"], "in the order in which they are applied"


BAD = {
    "unknown key": (["model.n_layers=2"], "did you mean 'model.n_layer'"),
    "unknown group": (["modle.n_layer=2"], "did you mean 'model'"),
    "key of another group": (["model.batch_size=2"], "training.batch_size"),
    "wrong type": (["model.n_layer=two"], "model.n_layer='two'"),
    "a fraction of a step": (["training.steps=1.5"], "training.steps=1.5"),
    "negative": (["training.steps=-1"], "training.steps=-1"),
    "no value": (["training.steps="], "training.steps"),
    "heads do not divide": (["model.n_embd=10", "model.n_head=3"], "n_embd=10 is not divisible by n_head=3"),
    "unknown preset": (["dmeo"], "did you mean 'demo'"),
    "not an override": (["demo", "steps"], "'steps' is not an override"),
    "unknown optimization": (["--with", "sdpa_atention"], "did you mean 'sdpa_attention'"),
    "duplicated optimization": (["--with", "sdpa_attention+sdpa_attention"], "listed twice"),
    "duplicated over two": (["--with", "sdpa_attention", "--with", "sdpa_attention"], "listed twice"),
    "empty optimization": (["--with", ""], "is not an optimization"),
    "unknown field": (["--with", "activation_checkpointing:evry=2"], "did you mean 'every'"),
    "duplicated field": (["--with", "activation_checkpointing:every=2,every=3"], "given twice"),
    "field of the wrong type": (["--with", "activation_checkpointing:every=two"], "every"),
    "field that is no value": (["--with", "activation_checkpointing:every=["], "cannot be read as a value"),
    "field without value": (["--with", "activation_checkpointing:every"], "field=value"),
    "micro-batches do not divide": (["--with", "gradient_accumulation:micro_batches=3"], "3"),
    "missing corpus": (["data.path=nowhere.txt"], "nowhere.txt"),
    "init from nothing": (["model.init_from=nowhere"], "neither a folder nor a run"),
    "vocabulary too small": (["model.vocab_size=100"], "smaller than the tokenizer's 256"),
    "no time": (["--timeout", "0"], "timeout"),
    "resume what is not": (["--resume", "nothing"], "there are no runs"),
    "time in words": (["--timeout", "soon"], "number"),
    "unknown option": (["--whit", "x"], "--whit"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    assay: Assay, fake: Fake, corpus: str, home: Home, case: str
) -> None:
    words, expected = BAD[case]
    usual = [] if "--resume" in words else [corpus, *TINY]
    source = [word for word in words[:1] if word in {"demo", "dmeo"}]
    said = assay("train", *source, *usual, *words[len(source) :])
    assert said.code == 2
    assert expected in said.sentence()
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", "no text"), (b"\x00\x01\x02" * 100, "text"), (b"short", "context")],
    ids=["empty", "binary", "shorter than a context"],
)
def test_a_corpus_that_is_unfit(
    assay: Assay, fake: Fake, home: Home, tmp_path: Path, content: bytes, expected: str
) -> None:
    (tmp_path / "unfit.txt").write_bytes(content)
    said = assay("train", "data.path=unfit.txt", *TINY)
    assert said.code == 2
    assert expected in said.sentence()
    assert not home.runs.exists() or not any(home.runs.iterdir())
    assert not home.store.exists()


def test_a_home_that_cannot_be_written(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    home.root.write_text("a file in the way")
    said = assay("train", corpus, *TINY)
    assert said.code == 2
    assert "ASSAY_HOME" in said.sentence()
    assert home.root.read_text() == "a file in the way"


def test_a_device_that_is_not_there(
    assay: Assay, fake: Fake, corpus: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.hardware import detect
    from assay.launch import prepare

    here = detect().model_copy(update={"accelerators": ()})
    monkeypatch.setattr(prepare, "known_machine", lambda home, threads: here)
    said = assay("train", corpus, *TINY, "device=cuda")
    assert said.code == 2
    assert "device=cpu" in said.sentence()
    assert not home.root.exists()


def test_resume_goes_on_in_the_same_folder(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    fake.behaves("die2")
    first = assay("train", corpus, *TINY, "--json").value
    assert (first["status"], first["steps"]) == ("killed", 2)
    fake.behaves()
    again = assay("train", "--resume", "last", "--json").value
    assert (again["run"], again["status"], again["steps"]) == (first["run"], "done", 4)
    more = assay("train", "--resume", first["run"][:-2], "training.steps=6", "--json").value
    assert (more["run"], more["status"], more["steps"]) == (first["run"], "done", 6)
    assert len(list(home.runs.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model.n_layer=2"], "'model.n_layer' cannot change when a run is resumed"),
        (["training.learning_rate=1"], "when a run is resumed; only training.steps"),
        (["training.warmup_steps=1"], "when a run is resumed; only training.steps"),
        (["training.step=9"], "did you mean 'training.steps'"),
        (["demo"], "leave out the preset"),
        (["--with", "sdpa_attention"], "sdpa_attention cannot be added when a run is resumed"),
        (["--with", "fully_sharded:mixed_precision=true", "--nproc", "2"], "cannot be added when a run is resumed"),
        (["--nproc", "2"], "no technique divides the run among 2 ranks"),
        (["training.steps=6", "--with", "tensor_parallel"], "a multiple of 2 ranks"),
        (["training.steps=3"], "done after 4 steps"),
        ([], "give a higher training.steps"),
    ],
)
def test_impossible_resumptions_are_refused(
    assay: Assay, fake: Fake, corpus: str, words: list[str], expected: str
) -> None:
    run = assay("train", corpus, *TINY, "--json").value["run"]
    before = assay("runs", "show", run, "--json").value
    said = assay("train", "--resume", run, *words)
    assert said.code == 2
    assert expected in said.sentence()
    assert assay("runs", "show", run, "--json").value == before


def test_a_branch_is_a_run_of_its_own(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    stable = ("training.schedule=constant", "training.keep_steps=[2]", "training.warmup_steps=0")
    trunk = assay("train", corpus, *TINY, *stable, "--json").value["run"]
    place = home.runs / trunk / "checkpoints" / "step-00000002"
    place.mkdir(parents=True)
    save_file({"head.norm.weight": np.ones(8, np.float32)}, place / "model.safetensors")
    found = assay("train", "--branch", f"{trunk}@2", "training.steps=3", "--name", "short", "--json").value
    assert RunFolder(home.runs / found["run"]).spec().branch == Branch(run=trunk, step=2)
    assert found["config"]["training"]["schedule"] == "wsd"
    assert found["run"].endswith("-short")
    assert (home.runs / found["run"] / "checkpoints" / "step-00000002").is_dir()
    for words, said in (
        (("demo",), "leave out the preset"),
        (("--with", "muon"), "leave out --with and --resume"),
        (("--resume", "last"), "leave out --with and --resume"),
        (("--nproc", "2"), "'ranks' cannot change in a branch"),
    ):
        refused = assay("train", "--branch", f"{trunk}@2", *words)
        assert (refused.code, said in refused.sentence()) == (2, True), refused.sentence()
    assert len(list(home.runs.iterdir())) == 2


def test_a_diverged_run_is_not_resumed(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves(status="diverged")
    assert assay("train", corpus, *TINY).code == 3
    assert "would end so again" in assay("train", "--resume", "last").sentence()


def test_a_run_goes_on_once_what_it_wants_is_there(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves(status="unavailable")
    assert assay("train", corpus, *TINY).code == 2
    fake.behaves()
    assert assay("train", "--resume", "last", "training.steps=6", "--json").value["status"] == "done"


def test_a_spent_budget_must_be_raised(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves(status="budget_reached")
    assert assay("train", corpus, *TINY, "training.tokens=64").code == 4
    assert "give more training.tokens or" in assay("train", "--resume", "last").sentence()
    assert assay("train", "--resume", "last", "training.tokens=128").code == 4


def test_a_changed_corpus_is_noticed_on_resume(assay: Assay, fake: Fake, corpus: str) -> None:
    fake.behaves("die2")
    assay("train", corpus, *TINY)
    Path(corpus.partition("=")[2]).write_text("Quite another text.\n" * 80)
    said = assay("train", "--resume", "last")
    assert said.code == 2
    assert "corpus" in said.sentence()


def test_a_full_disk_ends_the_run_as_failed(assay: Assay, fake: Fake, corpus: str) -> None:
    earlier = assay("train", corpus, *TINY, "--json").value
    fake.behaves("fail2")
    said = assay("train", corpus, *TINY, "--json")
    assert (said.code, said.value["status"], said.value["steps"]) == (1, "failed", 2)
    assert "No space left on device" in said.value["reason"]
    assert assay("runs", "show", earlier["run"], "--json").value == earlier


def test_a_disk_that_is_full_from_the_start(
    assay: Assay, fake: Fake, corpus: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = assay("train", corpus, *TINY, "--json").value

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    said = assay("train", corpus, *TINY)
    assert said.code == 1
    assert "No space left on device" in said.sentence()
    monkeypatch.undo()
    monkeypatch.setenv("ASSAY_HOME", str(home.root))
    assert [row["run"] for row in assay("runs", "ls", "--json").value] == [earlier["run"]]
    assert [path.name for path in home.runs.iterdir()] == [earlier["run"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nproc", "2"], "no technique divides the run among 2 ranks"),
        (["--nproc", "2", "ranks=4", "--with", "data_parallel"], "--nproc 2 and ranks=4 both set the number of ranks"),
        (["--nproc", "2", "--with", "pipeline_parallel:split=4-0"], "such as 3-1"),
    ],
)
def test_ranks_that_nothing_would_use_are_refused(assay: Assay, home: Home, words: list[str], says: str) -> None:
    said = assay("train", "demo", *words)
    assert said.code == 2
    assert says in said.sentence()
    assert not home.root.exists()


def test_a_technique_that_is_known_to_lose_is_named_before_the_run(
    assay: Assay, fake: Fake, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "slower_techniques", lambda run, here: [f"{run.optimizations[0].name}: slower"])
    said = assay("train", corpus, *TINY, "--with", "sdpa_attention")
    assert said.code == 0
    assert said.err.index("sdpa_attention: slower") < said.err.index("run 2")
