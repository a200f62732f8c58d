"""`assay recommend`: the answer and its parts, on this machine and for absent ones, and bad input."""

import re
import shlex
from math import ceil
from pathlib import Path

import pytest

from assay import api
from assay.api import configure
from assay.api.configuration import on_device
from assay.api.result_types import LayoutRecommendation
from assay.config import Home
from assay.estimator.device_memory import need_of
from assay.estimator.estimate import estimate as predict
from assay.hardware.detect import detect
from assay.hardware.devices import device
from assay.hardware.rates import rates_file, with_rates
from cli.conftest import Assay
from support.advice import HERE, RATES, SMALL

RUN = ("demo", *SMALL, "device=cpu", "training.batch_size=2")
QUICK = ("--calibrate", "0")


@pytest.fixture
def rated(home: Home) -> Home:
    """Return a home in which the rates of this machine are known."""
    home.ready()
    rates_file(home).write_bytes(with_rates(rates_file(home), detect(), {"cpu": RATES}, 1))
    return home


def test_the_answer_names_a_stack_its_parts_and_the_command(assay: Assay, rated: Home) -> None:
    said = assay("recommend", *RUN, "--memory", "100MB", *QUICK)
    assert said.code == 0
    (command,) = re.findall(r"command\s+(assay train demo .*)", said.out)
    (stack,) = re.findall(r"--with (\S+)$", command)
    for text in ("tokens/s", "compatible stacks were searched", "train differently", "Times are a roofline"):
        assert text in said.out
    for element in stack.split("+"):
        assert re.search(rf"^{re.escape(element)}\s", said.out, flags=re.MULTILINE)


def test_json_has_the_same_and_what_fits_is_fast(assay: Assay, rated: Home) -> None:
    value = assay("recommend", *RUN, "--memory", "4MB", *QUICK, "--tokens", "1M", "--json").value
    assert value["recommended"]["need_bytes"] <= 4 * 10**6
    assert value["candidates"] > 1000
    needs = [one["need_bytes"] for one in value["frontier"]]
    speeds = [one["tokens_per_second"] for one in value["frontier"]]
    assert needs == sorted(needs, reverse=True)
    assert speeds == sorted(speeds, reverse=True)
    assert value["training"]["seconds"] == pytest.approx(1e6 / value["recommended"]["tokens_per_second"])
    assert value["recommended"]["optimizations"] in value["command"]
    rest = [part["without"] for part in value["parts"] if part["without"]]
    assert all(one["step_seconds"] >= value["recommended"]["step_seconds"] / 1.01 for one in rest if one["fits"])


def test_a_budget_without_a_device_asks_nothing_of_this_machine(
    assay: Assay, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*given: object, **named: object) -> None:
        raise AssertionError("the rates of this machine were asked for")

    for place in ("launch.rates.measured_machine", "hardware.rates.known_machine", "hardware.rates.known_rates"):
        monkeypatch.setattr(f"assay.{place}", asked)
    said = assay("recommend", *RUN, "--memory", "4MB")
    assert said.code == 0
    assert "nothing was asked of this machine" in said.out
    assert "tokens/TFLOP" in said.out
    assert "tokens/s" not in said.out
    assert not home.root.exists()


def test_without_a_device_the_simplest_stack_of_the_least_arithmetic_is_advised(assay: Assay) -> None:
    roomy = assay("recommend", *RUN, "--memory", "100MB", "--json").value
    assert roomy["recommended"]["optimizations"] == ""
    assert roomy["device"] is None
    tight = assay("recommend", *RUN, "--memory", str(roomy["baseline"]["need_bytes"] - 1), "--json").value
    best, bare = tight["recommended"], tight["baseline"]
    assert (best["fits"], bare["fits"]) == (True, False)
    assert best["step_flops"] == bare["step_flops"] > 0
    assert best["optimizations"]
    assert "+" not in best["optimizations"]
    assert best["tokens_per_second"] is best["step_seconds"] is None


def test_a_frame_of_an_unnamed_device_has_flops_and_no_times() -> None:
    found = api.recommend(*RUN, memory_bytes=10**8)
    frame = found.to_frame()
    assert frame["tokens_per_second"].isna().all()
    assert (frame["step_flops"] > 0).all()
    figure = found.plot()
    assert figure is not None
    assert figure.axes[0].get_ylabel() == "tokens/TFLOP"


def test_without_a_device_the_answer_begins_with_its_basis_and_needs_no_loss_scale(assay: Assay) -> None:
    """By arithmetic fp16_mixed and bf16_mixed are equal, and the one with a loss scale was advised."""
    shape = ("model.n_layer=4", "model.n_embd=512", "model.n_head=8", "model.context_length=512")
    said = assay("recommend", "gpt2-124m", *shape, "--memory", "900MB")
    assert said.code == 0, said.sentence()
    assert said.out.startswith("By arithmetic alone, because no device is named: gpt2-124m fits 858 MiB with ")
    assert "fp16_mixed: bf16_mixed takes as much arithmetic where no device is named" in said.out
    value = assay("recommend", "gpt2-124m", *shape, "--memory", "900MB", "--json").value
    assert "fp16_mixed" not in " ".join(one["optimizations"] for one in (value["recommended"], *value["frontier"]))
    assert not assay("recommend", "demo", *SMALL, "--device", "t4").out.startswith("By arithmetic")


def test_hours_need_a_device(assay: Assay) -> None:
    said = assay("recommend", *RUN, "--memory", "100MB", "--tokens", "1M")
    assert said.code == 2
    assert "hours are of a device; name a GPU with --device" in said.sentence()


def test_a_limit_of_the_loss_leaves_only_what_is_known_to_keep_it(assay: Assay, rated: Home) -> None:
    value = assay("recommend", *RUN, "--memory", "100MB", *QUICK, "--max-loss-change", "0", "--json").value
    assert value["recommended"]["numerics"] in ("bit-equal to the baseline", "equal up to the order of summation")
    assert "bf16_mixed" in value["refused"]


def test_an_absent_device_is_answered_by_its_datasheet(assay: Assay) -> None:
    said = assay("recommend", "demo", *SMALL, "training.batch_size=1", "--device", "a100-40gb", "--tokens", "1B")
    assert said.code == 0
    for text in (
        "39.4 GiB of device on a100-40gb",
        "predicted by operators measured on one H200, on other devices by their datasheets",
        "tokens take",
        "cpu_offload: copies",
    ):
        assert text in said.out
    speeds = re.search(r"speed +([\d.]+)k \(([\d.]+)k to ([\d.]+)k\) tokens/s", said.out)
    assert speeds is not None
    speed, slowest, fastest = map(float, speeds.groups())
    assert (slowest, fastest) == pytest.approx((speed / 1.4, speed / 0.6), rel=0.01)


def test_a_recommendation_that_is_refused_leaves_no_prepared_text(assay: Assay, home: Home, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be " * 200)
    words = (*RUN, f"data.path={tmp_path / 'text.txt'}", "data.tokenizer=char")
    refused = assay("recommend", *words, "--memory", "4")
    assert refused.code == 2
    assert "nothing that leaves the training as it is, in a known time, fits into 4 B" in refused.err
    assert not home.root.exists()


def test_a_model_that_does_not_fit_is_refused_with_the_smallest_budget_that_would_do(assay: Assay, rated: Home) -> None:
    said = assay("recommend", *RUN, "--memory", "10kB", *QUICK)
    assert said.code == 2
    (least,) = re.findall(r"the smallest budget that would do is (\d+) bytes", said.sentence())
    assert assay("recommend", *RUN, "--memory", least, *QUICK).code == 0
    assert assay("recommend", *RUN, "--memory", str(int(least) - 1), *QUICK).code == 2


def test_where_nothing_fits_a_smaller_training_is_named_with_its_need_and_its_command(assay: Assay) -> None:
    """Llama's 8 billion were said to need 79 GiB at least, which 4-bit weights with adapters fit into a fifth of."""
    words = ("llama-3.1-8b", "model.n_layer=8", "model.context_length=512")
    said = assay("recommend", *words, "--device", "t4")
    assert said.code == 2
    other = r"others need ([\d.]+) GiB \((\S+)\)(?: or ([\d.]+) GiB \(\S+\))?: assay (.*)$"
    found = re.search(other, said.sentence())
    assert found is not None
    assert found[2].startswith("lora:base=nf4")
    command = shlex.split(found[4])
    assert command[:4] == ["estimate", *words]
    estimated = assay(*command, "--json").value
    high = estimated["device_memory"]["total_bytes"]["high"]
    assert high / 2**30 == pytest.approx(float(found[1]), rel=0.01)
    assert high <= device("t4").memory_bytes
    assert not found[3] or float(found[3]) * 2**30 <= device("t4").memory_bytes * 1.01


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "a budget is missing; give --memory"),
        (("--memory", "0"), "a budget of 0 bytes is not possible"),
        (("--device", "t4", "--memory", "200GB"), "a T4 has 14.6 GiB for torch, and not 186 GiB"),
        (("--device", "a200"), "no datasheet of a device 'a200' is known"),
        (("--device", "t4", "--verify"), "nothing can be trained there"),
        (("--memory", "1GB", "--max-loss-change", "2"), "is no limit"),
        (("--memory", "1GB", "--calibrate", "-1"), "calibration cannot take -1 seconds"),
        (("--memory", "1GB", "--tokens", "0"), "training on 0 tokens is not possible"),
        (("ranks=2", "--memory", "1GB"), "stacks are searched for one device"),
        (("--memory", "1GB", "--gpus", "8"), "name them with --device"),
        (("--device", "a100", "--gpus", "0"), "0 GPUs are not possible"),
        (("--device", "a100", "--gpus", "12"), "12 GPUs do not fill nodes of 8"),
        (("--device", "a100", "--gpus", "8", "--gpus-per-node", "0"), "8 GPUs do not fill nodes of 0"),
        (("--device", "a100", "--gpus", "8", "--verify"), "nothing can be trained there"),
        (("--device", "a100", "--gpus", "8", "--of", "tensors"), "leave out --of or --gpus"),
        (("--device", "a100", "--gpus-per-node", "8"), "give their number with --gpus"),
        (("--device", "t4", "--gpus", "8"), "no datasheet of a GPU 't4' is known"),
        (("--memory", "1GB", "--of", "disk"), "memory is that of tensors, process or device"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(assay: Assay, rated: Home, words: tuple[str, ...], sentence: str) -> None:
    run = RUN if "--device" not in words else [one for one in RUN if one != "device=cpu"]
    said = assay("recommend", *run, *QUICK, *words)
    assert said.code == 2
    assert sentence in said.sentence()


def test_python_returns_the_same_with_a_frame_and_a_figure() -> None:
    found = api.recommend(*RUN, memory_bytes=10**8, machine=HERE)
    frame = found.to_frame()
    assert frame["optimizations"].tolist() == [one.title for one in found.frontier]
    assert found.plot() is not None
    assert found.recommended.title in found._repr_html_()
    assert repr(found).startswith("<recommended: ")
    assert found.to_dict()["verified"] is None


CLUSTER = ("recommend", "gpt2-124m", "training.batch_size=64", "--device", "a100", "--gpus", "16", "--tokens", "1B")


def test_several_gpus_have_a_layout_its_command_and_its_waiting(assay: Assay) -> None:
    said = assay(*CLUSTER)
    assert said.code == 0
    for text in (
        "on 2 × 8 A100 80 GB",
        "in use on each rank, by its ledger, of 79.1 GiB",
        "in collectives",
        "idle in the pipeline",
        "hours of one GPU",
        "at best, by the plan",
        "next layout",
        "predicted from datasheets, and nothing was measured",
        "no command of assay starts a run over several nodes",
    ):
        assert text in said.out


def test_the_command_plans_the_recommended_layout_again(assay: Assay) -> None:
    value = assay(*CLUSTER, "--json").value
    best = value["recommended"]
    again = assay(*shlex.split(value["command"])[1:], "--json").value
    assert again["step_seconds"] == best["step_seconds"]
    assert again["tokens_per_second"] == best["tokens_per_second"]
    assert again["mesh"] == best["mesh"]
    there, machine = on_device(configure("gpt2-124m", (CLUSTER[2], "ranks=16"), best["optimizations"]), "a100")
    assert need_of("device")(predict(there, machine)) == best["need_bytes"]
    assert value["training"]["seconds"] == pytest.approx(ceil(1e9 / (64 * 1024)) * value["step_seconds"])
    assert value["measured"] is False


def test_one_node_also_has_a_command_that_trains(assay: Assay) -> None:
    words = ("recommend", "gpt2-124m", "--device", "h100", "--gpus", "4", "--memory", "20GB", "--json")
    value = assay(*words).value
    assert value["train_command"].startswith("assay train gpt2-124m --nproc 4 --with ")
    assert value["recommended"]["need_bytes"] <= value["budget_bytes"] == 20 * 10**9


def test_one_gpu_is_the_answer_for_one_device(assay: Assay) -> None:
    words = ("recommend", "demo", *SMALL, "training.batch_size=1", "--device", "a100", "--json")
    assert assay(*words, "--gpus", "1").value == assay(*words).value


def test_python_answers_for_several_gpus_too() -> None:
    found = api.recommend("gpt2-124m", device="a100", gpus=8)
    assert isinstance(found, LayoutRecommendation)
    frame = found.to_frame()
    assert frame["optimizations"].tolist() == [one.title for one in found.frontier]
    assert found.recommended.mesh.size == 8
    assert found.recommended.title in found._repr_html_()
    assert repr(found).startswith("<recommended: ")
