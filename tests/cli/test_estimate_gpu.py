"""`assay estimate --trace --device`, `--absent`, and `assay measure --device`: a step on a GPU that is not there."""

import os
import re
from pathlib import Path

import pytest

from assay.fake.peak import MOST_RESERVED
from cli.conftest import Assay
from support.absent import PYTHON, needs_cuda_build
from support.fake_library import shared_library

STEP = """
import torch


def build(batch_size):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss = model(torch.randn(batch_size, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64)

    def forward(self, ids, targets):
        return torch.nn.functional.cross_entropy(self.head(self.embed(ids)).flatten(0, 1), targets.flatten())


def bare(config):
    with torch.device("meta"):
        return Line()


def elsewhere():
    model = Line()
    optimizer, ids = torch.optim.SGD(model.parameters()), torch.zeros(2, 4, dtype=torch.long)

    def step():
        model(ids, ids).backward()
        optimizer.step()

    return step


def decides():
    inner = build(8)
    return lambda: print("large") if inner() > 3 else None
"""


@pytest.fixture
def in_folder(
    assay: Assay, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A working directory with steps of a user's own, a home with the library, and no Python with a CUDA build."""
    shared_library(tmp_path_factory, Path(os.environ["ASSAY_HOME"]))
    (tmp_path / "train.py").write_text(STEP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_ABSENT_PYTHON", raising=False)


@pytest.mark.usefixtures("in_folder")
def test_a_preset_is_traced_for_a_gpu(assay: Assay) -> None:
    words = ("estimate", "demo", "model.vocab_size=65", "--trace", "--device", "l4", "--with", "sdpa_attention")
    value = assay(*words, "--json").value
    assert value["ran"] is False
    assert value["fits"] == "yes"
    assert sum(value["parts"].values()) == value["requested_peak_bytes"]
    workspaces = value["requested_peak_bytes"] - value["peak_bytes"]
    assert workspaces == 2 * 8_519_680  # those of two threads; no product of the demo has a bias
    assert value["reserved_peak_bytes"] is None
    assert value["kernels"] == {"memory-efficient": 3}
    low, high = value["in_use_bytes"]
    assert high - low >= (MOST_RESERVED - 1) * value["requested_peak_bytes"]


@pytest.mark.usefixtures("in_folder")
def test_a_step_of_a_users_own_is_traced(assay: Assay) -> None:
    said = assay("estimate", "train.py:build", "training.batch_size=1024", "--device", "t4", "--trace")
    assert said.code == 0
    assert said.out.startswith("It fits one Tesla T4 of 14.6 GiB: ")
    assert re.search(r"^batch\s+1024$", said.out, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_the_largest_batch_of_a_users_own_step_is_found(assay: Assay) -> None:
    said = assay("estimate", "train.py:build", "training.batch_size=1024", "--device", "t4", "--trace", "--largest")
    # A row has its input, the product before the activation and after it, and the output, and gradients of some.
    largest = re.search(r"^largest batch\s*(\d+), also if", said.out, re.MULTILINE)
    assert largest is not None
    assert 150_000 < int(largest[1]) < 600_000


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_a_model_of_a_users_own_is_traced_also_from_the_meta_device(assay: Assay) -> None:
    words = ("model.vocab_size=64", "model.context_length=16", "training.batch_size=4")
    value = assay("estimate", "train.py:bare", *words, "--trace", "--device", "l4", "--json").value
    assert value["parameters"] == 64 * 32 + 32 * 64 + 64
    assert value["peak_bytes"] >= 4 * (3 * value["parameters"] + 2 * 4 * 16 * 64)


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_the_largest_batch_needs_none_to_begin_with(assay: Assay) -> None:
    value = assay("estimate", "train.py:build", "--device", "t4", "--trace", "--largest", "--json").value
    assert value["batch_size"] == 1
    assert value["largest_batch"] > 150_000


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train.py:decides", "--trace", "--device", "h100"), 'reads a value ("item"); a trace computes no values'),
        pytest.param(
            ("train.py:build", "--trace", "--device", "h100"),
            "train.py:build takes batch_size; give it a default",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("train.py:elsewhere", "--trace", "--device", "h100"),
            "the step's model is on the device cpu",
            marks=pytest.mark.slow,
        ),
        (("demo", "--absent"), "--absent needs a GPU; name one, as in --absent --device h100"),
        (("demo", "--trace", "--device", "b200"), "no absent GPU is called 'b200'"),
        (("demo", "model.vocab_size=65", "--absent", "--device", "h100"), "name a Python that has one in the variable"),
    ],
)
def test_a_question_without_an_answer_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", *words)
    assert said.code == 2
    assert says in said.sentence()


@pytest.mark.usefixtures("in_folder")
def test_a_measurement_on_a_device_that_is_not_there_is_a_prediction(assay: Assay) -> None:
    said = assay("measure", "train.py:decides", "--device", "h100")
    assert said.code == 2
    assert "is predicted" in said.err
    assert "the step is traced on fake tensors: an absent GPU needs a CUDA build of torch" in said.err
    assert assay("measure", "train.py:build", "--device", "h100", "--tokens", "3").sentence().startswith("--tokens is")


@pytest.mark.absent
@needs_cuda_build
def test_a_step_that_runs_has_the_traced_peak(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ABSENT_PYTHON", PYTHON)
    words = ("estimate", "demo", "model.vocab_size=65", "--device", "h200", "--json", "--with", "bf16_mixed")
    ran, traced = (assay(*words, way).value for way in ("--absent", "--trace"))
    assert ran["requested_peak_bytes"] == traced["requested_peak_bytes"]
    assert ran["reserved_peak_bytes"] >= ran["allocated_peak_bytes"] >= ran["requested_peak_bytes"]
    assert ran["parts"] == traced["parts"]


@pytest.mark.absent
@needs_cuda_build
@pytest.mark.usefixtures("in_folder")
def test_memory_that_ends_is_an_answer(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ABSENT_PYTHON", PYTHON)
    words = ("estimate", "train.py:build", "--device", "t4", "--absent")
    said = assay(*words, "training.batch_size=9000000", "--largest")
    assert said.out.startswith("It does not fit one Tesla T4 of 14.6 GiB: CUDA out of memory. Tried to allocate ")
    largest = re.search(r"^largest batch\s*(\d+)$", said.out, re.MULTILINE)
    assert largest is not None
    value = assay(*words, f"training.batch_size={largest[1]}", "--json").value
    assert value["fits"] == "yes"
    assert value["exhausted"] is None
    assert value["in_use_bytes"][1] > 0.98 * value["memory_bytes"]


@pytest.mark.absent
@needs_cuda_build
@pytest.mark.usefixtures("in_folder")
def test_a_step_whose_workspaces_are_not_known_fits_on_a_condition(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pictures.py").write_text(
        STEP.replace("torch.nn.Linear(1024, 4096)", "torch.nn.Unflatten(1, (1, 1024)), torch.nn.Conv1d(1, 4, 3), "
                     "torch.nn.Flatten(), torch.nn.Linear(4 * 1022, 4096)"),
        encoding="utf-8",
    )  # fmt: skip
    words = ("estimate", "pictures.py:build", "--device", "h200", "--json", "training.batch_size=8")
    traced = assay(*words, "--trace").value
    monkeypatch.setenv("ASSAY_ABSENT_PYTHON", PYTHON)
    ran = assay(*words, "--absent").value
    assert [one["fits"] for one in (ran, traced)] == ["conditional", "conditional"]
    assert ran["unknown"] == traced["unknown"] == ["cuDNN's convolutions"]
