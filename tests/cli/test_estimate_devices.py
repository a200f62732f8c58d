"""`assay estimate` on devices by their datasheets, and refused options."""

import re
from collections.abc import Iterable

import pytest

import assay as package
from assay.errors import UsageError
from assay.hardware.devices import DEVICES
from cli.conftest import Assay


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--device", ""), "no datasheet of a device '' is known; there are v100, t4,"),
        (("--device", "abacus", "--json"), f"'abacus' is known; there are {', '.join(DEVICES)}"),
        (("--device", "mi300x"), "MI300X does not run CUDA"),
        (("--device", "v100", "--with", "bf16_mixed"), "V100 32 GB is older"),
        (("--device", "a100", "device=cpu"), "device=cpu and --device a100 both say where the step runs"),
        (("--device", "a100", "ranks=2", "--with", "data_parallel"), "a device is one GPU, and the run has ranks=2"),
    ],
)
def test_an_impossible_prediction_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", "gpt2-124m", *words)
    assert said.code == 2
    assert says in said.sentence()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--within", "30"), "--within is used with --calibrate only"),
        (("--device", "l4", "--nproc", "2"), "--nproc is not used with --device"),
        (("--device", "l4", "--calibrate"), "--device is not used with --calibrate"),
        (("--largest",), "--largest is used with --trace or --absent only"),
        (("--device", "l4", "--absent", "--nproc", "2"), "--nproc is not used with --absent"),
        (("--trace", "--absent"), "--trace and --absent ask two questions"),
        (("--trace", "--within", "30"), "--within is used with --calibrate only"),
        (("--trace", "--calibrate"), "--trace and --calibrate ask two questions"),
    ],
)
def test_an_option_of_another_question_is_refused(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", "gpt2-124m", *words)
    assert said.code == 2
    assert said.sentence().startswith(says)


def test_a_step_on_an_absent_device_is_told_as_one(assay: Assay) -> None:
    words = ("estimate", "gpt2-124m", "--with", "bf16_mixed+sdpa_attention", "--device")
    there = {name: assay(*words, name, "--json").value for name in ("a100", "H100")}
    for name, value in there.items():
        sheet = DEVICES[name.lower()]
        told = value["datasheet"]
        assert (told["device"], told["times_as_long"], told["operators_of"]) == (sheet.name, [1.5, 4.0], "h200")
        assert value["step_seconds"] >= max(told["host_seconds"], told["device_seconds"]) / 1.001
        assert value["roofline_seconds"] < value["step_seconds"]
        assert value["step_seconds_margin"] == 0.4
        assert value["peak_flops"] == sheet.flops["bfloat16"]
        # A product takes at least its FLOPs over the peak; the traffic of other operations is added.
        assert sum(value["flops_by_dtype"].values()) / sheet.half_flops < value["step_seconds"] < 1
        assert value["device_memory"]["total_bytes"]["low"] > value["tensors_peak_bytes"]
    assert there["H100"]["step_seconds"] < there["a100"]["step_seconds"]
    said = assay(*words, "a100")
    assert "device\tA100 80 GB, 79.1 GiB for torch; it may be absent" in said.out
    assert " ms, within ± 40 %, by operators measured on one H200, in proportion to both datasheets" in said.out
    assert " on the device; it waits for the " in said.out
    copied = assay("estimate", "gpt2-124m", "--with", "activation_offload", "--device", "a100")
    assert " a roofline of the datasheet's peaks: no step is faster, and real ones take 1.5 to 4 times" in copied.out
    assert "datasheet" not in assay("estimate", "demo", "--json").value
    assert "highest instant of each part" in assay(*words, "a100", "--instants").out


def test_a_product_that_the_datasheet_lacks_has_no_time(assay: Assay) -> None:
    said = assay("estimate", "demo", "--device", "h100", "--with", "fp8")
    assert "step time\tnot predicted; the datasheet has no product in float8_e4m3fn\n" in said.out


def test_programs_name_a_device_too() -> None:
    found = package.estimate("gpt2-124m", device="a100", optimizations="bf16_mixed")
    assert found.sheet is not None
    assert found.run.device == "cuda"
    assert "A100 80 GB" in found._repr_html_()
    with pytest.raises(UsageError, match="two places"):
        package.estimate("gpt2-124m", device="a100", machine=found.machine)


@pytest.mark.parametrize(
    ("verb", "named"),
    [
        ("estimate", [name for name, one in DEVICES.items() if one.capability]),
        ("inference", DEVICES),
        ("cost", DEVICES),
    ],
)
def test_help_names_every_device(assay: Assay, verb: str, named: Iterable[str]) -> None:
    """It is written out, because help must not load the devices."""
    said = " ".join(assay(verb, "--help").out.split())
    assert re.search(rf"by its datasheet: {', '.join(named)}[.;]", said)


def test_a_captured_graph_has_no_need_and_a_reason(assay: Assay) -> None:
    """It was said to request 2 GiB at once, below the 8 GiB of its tensors, and had no verdict without a word."""
    words = ("estimate", "gpt2-124m", "--device", "h100", "--with", "cuda_graphs+bf16_mixed+sdpa_attention")
    said, value = assay(*words), assay(*words, "--json").value
    assert "requested at once" not in said.out
    assert "does it fit?\tcannot be told: captured graphs have a pool of their own" in said.out
    assert value["requested_peak_bytes"] is None
    assert value["device_memory"]["reserved_bytes"] is None
    plain = assay(*words[:-1], "bf16_mixed+sdpa_attention", "--json").value
    assert plain["requested_peak_bytes"]["low"] >= plain["tensors_peak_bytes"]
