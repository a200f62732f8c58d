"""`assay sample` and `assay export`, on a run whose checkpoints were written by the trainer's own code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from assay.config import Home
from assay.config.run import Spec
from assay.data import load_tokenizer
from assay.model.weights import load_model
from assay.optimizations import resolve_run
from assay.training.checkpoints import checkpoint
from assay.training.step_record import Position
from assay.worker.ending import add_sample
from assay.worker.result import RunFindings
from cli.conftest import Assay
from support.steps import build_step
from support.trained import Trained


def test_a_sample_is_the_prompt_and_as_many_tokens_as_asked(assay: Assay, trained: Trained) -> None:
    folder = trained(3)
    said = assay("sample", "last", "--prompt", "The ", "--tokens", "30", "--seed", "1")
    assert said.code == 0
    assert said.out.startswith("The ")
    assert said.out.endswith("\n")
    assert len(said.out) == len("The ") + 30 + 1
    value = assay("sample", folder.id, "--prompt", "The ", "--tokens", "30", "--seed", "1", "--json").value
    assert "The " + value["text"] + "\n" == said.out
    assert {name: value[name] for name in ("run", "steps", "prompt")} == {
        "run": folder.id,
        "steps": 3,
        "prompt": "The ",
    }
    assert assay("sample", "last", "--prompt", "The ", "--tokens", "30", "--seed", "2", "--json").value != value


def test_the_likeliest_token_is_what_the_newest_checkpoint_says(assay: Assay, trained: Trained) -> None:
    folder = trained(3, 5)
    spec = folder.spec()
    model = load_model(folder.checkpoints / "step-00000005", spec.config.model)
    tokenizer = load_tokenizer(spec.data_folder)
    with torch.no_grad():
        ids = torch.tensor([tokenizer.encode("fox").tolist()])
        likeliest = tokenizer.decode(model.logits(ids)[0, -1].argmax().reshape(1).numpy())
    sampled = assay("sample", "last", "--prompt", "fox", "--tokens", "1", "--temperature", "0", "--json").value
    assert (sampled["text"], sampled["steps"]) == (likeliest, 5)
    again = assay("sample", "last", "--prompt", "fox", "--tokens", "1", "--temperature", "0", "--top-k", "1", "--json")
    assert untimed(sampled) == untimed(again.value) | {"top_k": None}


def test_a_run_records_the_beginning_of_what_the_command_writes(assay: Assay, trained: Trained) -> None:
    folder = trained(3)
    findings = RunFindings(folder.spec(), phases=None)
    add_sample(findings, folder)
    assert assay("sample", folder.id, "--json").value["text"].startswith(findings.sample.text)


def untimed(value: dict[str, object]) -> dict[str, object]:
    """A sample without its speed."""
    return {name: one for name, one in value.items() if name != "tokens_per_second"}


def test_a_cache_of_keys_and_values_changes_no_token(assay: Assay, trained: Trained) -> None:
    folder = trained(3)
    room = folder.spec().config.model.context_length
    words = ("sample", "last", "--prompt", "T", "--tokens", str(room - 1), "--json")
    with_cache, without = assay(*words).value, assay(*words, "--no-cache").value
    assert (without["cache_bytes"], with_cache["cache_bytes"] > 0) == (0, True)
    assert with_cache["text"] == without["text"]
    assert min(one["tokens_per_second"] for one in (with_cache, without)) > 0


def test_a_damaged_checkpoint_is_passed_over_and_said(assay: Assay, trained: Trained, tmp_path: Path) -> None:
    folder = trained(3, 5)
    (folder.checkpoints / "step-00000005" / "model.safetensors").write_bytes(b"torn")
    words = "the checkpoint step-00000005 is damaged; the older checkpoint of step 3 is used"
    for verb in (("sample", "last", "--tokens", "1"), ("export", "last", str(tmp_path / "out"))):
        said = assay(*verb, "--json")
        assert (said.value["steps"], said.value["notes"]) == (3, [words])
        assert f"assay: {words}" in said.err
    (folder.checkpoints / "step-00000003" / "state.json").write_text("{")
    said = assay("sample", "last")
    assert said.code == 2
    assert "only damaged checkpoints" in said.sentence()


@pytest.mark.parametrize("words", [("sample", "nothing"), ("export", "nothing", "there"), ("sample", "last")])
def test_a_run_that_is_not_there_needs_no_torch(trained: Trained, words: tuple[str, ...]) -> None:
    """Nor does one without a checkpoint."""
    trained()
    code = "import sys; from assay.cli.main import app\ntry: app(sys.argv[1:])\n"
    code += "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"], done.stderr


@pytest.mark.parametrize("old", [False, True])
def test_a_copied_home_reads_its_own_corpus(
    assay: Assay, trained: Trained, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """Older records have an absolute path, into the home that was copied."""
    folder = trained(3)
    spec = folder.spec()
    if not old:
        relative = str(Path(spec.data_folder).relative_to(home.root))
        folder.prepare(spec.model_copy(update={"data_folder": relative}))
    before = untimed(assay("sample", "last", "--prompt", "The ", "--json").value)
    shutil.copytree(home.root, tmp_path / "copy")
    shutil.rmtree(home.root)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "copy"))
    assert untimed(assay("sample", "last", "--prompt", "The ", "--json").value) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--prompt", "@"), "the character '@'"),
        (("--prompt", ""), "the prompt is empty"),
        (("--temperature", "-1"), "a temperature of -1.0"),
        (("--top-k", "0"), "top_k=0"),
    ],
)
def test_impossible_samples_exit_2(assay: Assay, trained: Trained, words: tuple[str, ...], sentence: str) -> None:
    trained(3)
    said = assay("sample", "last", *words)
    assert said.code == 2
    assert sentence in said.sentence()


def test_a_run_without_a_checkpoint_says_what_to_do(assay: Assay, trained: Trained, tmp_path: Path) -> None:
    folder = trained()
    for words in (("sample", "last"), ("export", "last", str(tmp_path / "out"))):
        said = assay(*words)
        assert said.code == 2
        assert f"`assay train --resume {folder.id}`" in said.sentence()
    assert not (tmp_path / "out").exists()


def test_adapters_are_merged_where_a_model_is_read_and_are_no_start_of_a_run(
    assay: Assay, trained: Trained, home: Home, tmp_path: Path
) -> None:
    folder = trained()
    spec = folder.spec()
    run = resolve_run(spec.config.model_copy(update={"optimizations": (Spec(name="lora", fields={"rank": 2}),)}))
    folder.prepare(spec.model_copy(update={"config": run}))
    step = build_step(run)
    for name, one in step.named_parameters():
        if name.endswith("lora_B"):
            torch.nn.init.normal_(one)
    checkpoint.save(folder.checkpoints, step, Position(step=3), "abcdef")
    said = assay("export", "last", str(tmp_path / "out"), "--format", "safetensors")
    assert "4 adapters are merged into the weights: W + (alpha / rank)·B·A" in said.err
    ids = torch.arange(8).reshape(1, 8)
    merged = load_model(tmp_path / "out", run.model)
    torch.testing.assert_close(merged.logits(ids), step.parts[0].logits(ids))
    assert assay("sample", "last", "--tokens", "3").code == 0
    refused = assay("train", "demo", "model.init_from=last", "--with", "lora")
    assert refused.code == 2
    assert "has adapters beside its weights" in refused.sentence()


def test_an_export_is_what_transformers_reads(assay: Assay, trained: Trained, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = trained(3, bias=False)
    said = assay("export", "last", str(tmp_path / "out"), "--json")
    assert said.code == 0
    assert said.value["format"] == "hf"
    assert set(said.value["files_bytes"]) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    ours = load_model(folder.checkpoints / "step-00000003", folder.spec().config.model)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    ids = torch.arange(8).reshape(1, 8)
    torch.testing.assert_close(ours.logits(ids), theirs(ids).logits, rtol=0, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    given = tokenizer("The q", return_tensors="pt")
    assert given["input_ids"].tolist() == [load_tokenizer(Path(folder.spec().data_folder)).encode("The q").tolist()]
    text = tokenizer.decode(theirs.generate(**given, max_new_tokens=3, do_sample=False)[0])
    assert text.startswith("The q")
    assert len(text) == len("The q") + 3


def test_an_export_without_its_prepared_text_has_no_tokenizer(assay: Assay, trained: Trained, tmp_path: Path) -> None:
    shutil.rmtree(trained(3).spec().data_folder)
    said = assay("export", "last", str(tmp_path / "out"))
    assert said.code == 0
    assert "without a tokenizer: " in said.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_a_model_that_gpt2_cannot_express_is_exported_as_it_is(assay: Assay, trained: Trained, tmp_path: Path) -> None:
    folder = trained(3, position="rotary", init_from="somewhere")
    said = assay("export", "last", str(tmp_path / "out"))
    assert said.code == 2
    assert "cannot express model.position=rotary" in said.sentence()
    assert "--format safetensors" in said.sentence()
    assert not (tmp_path / "out").exists()
    said = assay("export", "last", str(tmp_path / "out"), "--format", "safetensors")
    assert (said.code, said.out) == (0, f"{tmp_path / 'out'}\n")
    weights = load_file(folder.checkpoints / "step-00000003" / "model.safetensors")
    exported = load_file(tmp_path / "out" / "model.safetensors")
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], weights[name]) for name in weights)
    assert "init_from" not in json.loads((tmp_path / "out" / "config.json").read_text())


def test_an_export_spares_what_is_there(assay: Assay, trained: Trained, tmp_path: Path) -> None:
    trained(3)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    said = assay("export", "last", str(tmp_path / "out"))
    assert said.code == 2
    assert "is not an empty folder" in said.sentence()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    said = assay("export", "last", str(tmp_path / "new"), "--format", "onnx")
    assert said.code == 2
    assert "choose hf or safetensors" in said.sentence()
    assert not (tmp_path / "new").exists()
