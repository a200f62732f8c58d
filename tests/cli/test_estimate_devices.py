"""`assay estimate` on devices by their datasheets: a step, inference, the cost of a training, and refused options."""

import pytest

import assay as package
from assay.errors import UsageError
from assay.hardware.devices import DEVICES
from cli.conftest import Assay


def test_inference_says_sizes_speeds_and_limits(assay: Assay) -> None:
    words = ("estimate", "gpt2-124m", "--inference", "--device", "l4", "--bits", "8")
    said = assay(*words)
    assert said.code == 0
    assert "36.0 KiB a token, 36.0 MiB a sequence" in said.out
    assert "Products limit a token from" in said.out
    value = assay(*words, "--json").value
    assert value["cache_bytes_per_token"] == 36864
    assert [row["sequences"] for row in value["rows"] if not row["fits"]] == [1024]


def test_the_cost_of_a_training_is_hours_energy_and_money(assay: Assay) -> None:
    words = ("estimate", "gpt2-124m", "--tokens", "10B", "--device", "h100", "--devices", "8", "--price", "2.5")
    said = assay(*words)
    assert said.code == 0
    for text in ("FLOPs, Kaplan", "FLOPs, PaLM", "FLOPs, Chinchilla", "kWh", "at 2.5 for a device hour"):
        assert text in said.out
    value = assay(*words, "--json").value
    assert (value["tokens"], value["devices"]) == (1e10, 8)
    assert value["money"] == pytest.approx(value["device_hours"] * 2.5)
    assert value["training"]["money"] == pytest.approx([one * 8 * 2.5 for one in value["training"]["hours"]])
    assert value["seconds"] == pytest.approx(value["training"]["seconds"])


def test_the_mfu_follows_the_stack_unless_it_is_given(assay: Assay) -> None:
    words = ("estimate", "gpt2-124m", "--tokens", "10B", "--device", "a100")
    plain = assay(*words, "--json").value
    fast = assay(*words, "--with", "bf16_mixed+sdpa_attention+compile", "--json").value
    assert plain["mfu"] < 0.1 < 0.25 < fast["mfu"] < 0.6
    assert fast["mfu_between"][0] < fast["mfu"] < fast["mfu_between"][1]
    given = assay(*words, "--mfu", "0.3", "--json").value
    assert (given["mfu"], given["training"], given["assumed"]) == (0.3, None, False)
    assumed = assay("estimate", "gpt2-124m", "--tokens", "10B", "--device", "tpu-v5e")
    assert assumed.out.startswith("At an assumed 40% of the peak (MFU), 10.0B tokens take ")
    said = assay(*words, "--with", "bf16_mixed").out
    assert said.startswith(
        "On 1 × A100 80 GB with bf16_mixed, 8 sequences of 1,024 tokens a step on each, 10.0B tokens take "
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tokens", "10x"), "--tokens is '10x'; write a number such as 300B"),
        (("--tokens", "-1"), "must be positive"),
        (("--tokens", "1.7e308", "--json"), "none above 1e+20"),
        (("--tokens", "1B", "--price", "1e308"), "price=1e+308 is not possible"),
        (("--tokens", "1B", "--mfu", "1e-300"), "mfu=1e-300 is not possible"),
        (("--tokens", "1B", "--mfu", "40"), "mfu=40 is not possible"),
        (("--inference", "--device", "b20"), "did you mean 'b200'"),
        (("--inference", "--tokens", "1B"), "give only one of them"),
        (("--inference", "--bits", "3"), "weights have 32 or 16 or 8 or 4 bits"),
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
        (("--bits", "8"), "--bits is used with --inference only"),
        (("--devices", "2"), "--devices is used with --tokens only"),
        (("--mfu", "0.5"), "--mfu is used with --tokens only"),
        (("--price", "2"), "--price is used with --tokens only"),
        (("--within", "30"), "--within is used with --calibrate only"),
        (("--page", "x.html"), "--page is used with --accuracy only"),
        (("--device", "l4", "--bits", "8"), "--bits is used with --inference only"),
        (("--device", "l4", "--nproc", "2"), "--nproc is not used with --device"),
        (("--device", "l4", "--calibrate"), "--device is not used with --calibrate"),
        (("--largest",), "--largest is used with --trace or --absent only"),
        (("--device", "l4", "--absent", "--nproc", "2"), "--nproc is not used with --absent"),
        (("--trace", "--absent"), "--trace and --absent ask two questions"),
        (("--device", "l4", "--nodes", "2"), "--device is not used with --nodes"),
        (("--device", "l4", "--accuracy"), "--device is not used with --accuracy"),
        (("--inference", "--price", "2"), "--price is used with --tokens only"),
        (("--inference", "--with", "sgd"), "--with is not used with --inference"),
        (("--tokens", "1B", "--bits", "8"), "--bits is used with --inference only"),
        (("--tokens", "1B", "--nproc", "2"), "--nproc is not used with --tokens"),
        (("--tokens", "1B", "--instants"), "--instants is not used with --tokens"),
        (("--tokens", "1B", "--nodes", "2"), "--tokens and --nodes ask two questions"),
        (("--trace", "--within", "30"), "--within is used with --calibrate only"),
        (("--trace", "--calibrate"), "--trace and --calibrate ask two questions"),
        (("--gpu", "a100", "--instants"), "--instants is not used with --gpu"),
    ],
)
def test_an_option_of_another_question_is_refused(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", "gpt2-124m", *words)
    assert said.code == 2
    assert said.sentence().startswith(says)


def test_a_step_on_an_absent_device_is_told_as_one(assay: Assay) -> None:
    words = ("estimate", "gpt2-124m", "--with", "bf16_mixed", "--with", "sdpa_attention", "--device")
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
    assert "parts of the peak\tconfiguration\t+ bf16_mixed\t+ sdpa_attention" in said.out
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


def test_help_names_every_device(assay: Assay) -> None:
    """It is written out, because help must not load the devices."""
    said = " ".join(assay("estimate", "--help").out.split())
    assert f"by its datasheet: {', '.join(DEVICES)};" in said
