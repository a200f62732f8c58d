"""`assay cost`: hours, energy and money of a training, by the step of a stack or a given MFU; bad input refused."""

import re

import pytest

from cli.conftest import Assay


def test_the_cost_of_a_training_is_hours_energy_and_money(assay: Assay) -> None:
    words = ("cost", "gpt2-124m", "--tokens", "10B", "--device", "h100", "--devices", "8", "--price", "2.5")
    said = assay(*words)
    assert said.code == 0
    for text in ("FLOPs, Kaplan", "FLOPs, PaLM", "FLOPs, Chinchilla", "kWh", "at 2.5 for a device hour"):
        assert text in said.out
    value = assay(*words, "--json").value
    (energy,) = re.findall(r"energy of the boards\t(\S+) to (\S+) kWh", said.out)
    hours = value["training"]["hours"]
    assert [float(one.replace(",", "")) for one in energy] == pytest.approx([8 * 0.7 * one for one in hours], rel=1e-3)
    assert (value["tokens"], value["devices"]) == (1e10, 8)
    assert value["money"] == pytest.approx(value["device_hours"] * 2.5)
    assert value["training"]["money"] == pytest.approx([one * 8 * 2.5 for one in value["training"]["hours"]])
    assert value["seconds"] == pytest.approx(value["training"]["seconds"])


def test_the_mfu_follows_the_stack_unless_it_is_given(assay: Assay) -> None:
    words = ("cost", "gpt2-124m", "--tokens", "10B", "--device", "a100")
    plain = assay(*words, "--json").value
    fast = assay(*words, "--with", "bf16_mixed+sdpa_attention+compile", "--json").value
    assert plain["mfu"] < 0.1 < 0.25 < fast["mfu"] < 0.6
    assert fast["mfu_between"][0] < fast["mfu"] < fast["mfu_between"][1]
    given = assay(*words, "--mfu", "0.3", "--json").value
    assert (given["mfu"], given["training"], given["assumed"]) == (0.3, None, False)
    assumed = assay("cost", "gpt2-124m", "--tokens", "10B", "--device", "tpu-v5e")
    assert assumed.out.startswith("At an assumed 40% of the peak (MFU), 10.0B tokens take ")
    said = assay(*words, "--with", "bf16_mixed").out
    assert said.startswith(
        "On 1 × A100 80 GB with bf16_mixed, 8 sequences of 1,024 tokens a step on each, 10.0B tokens take "
    )


def test_whether_a_step_fits_is_said_at_a_given_mfu_as_well(assay: Assay) -> None:
    words = ("cost", "gpt2-1558m", "--tokens", "10B", "--device", "t4")
    plain, given = (assay(*words, *more, "--json").value for more in ((), ("--mfu", "0.4")))
    assert given["fit"]["verdict"] == "does not fit"
    assert {name: given[name] for name in ("fit", "batch", "stack")} == {
        name: plain[name] for name in ("fit", "batch", "stack")
    }
    said = assay(*words, "--mfu", "0.4").out
    assert said.startswith("A step does not fit its device; without that limit, at the given 40% of the peak (MFU), ")
    assert "does it fit?\tdoes not fit: " in said
    assert "\tfits: " in assay("cost", "gpt2-124m", "--tokens", "10B", "--device", "h100", "--mfu", "0.4").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Missing option '--tokens'"),
        (("--tokens", "10x"), "--tokens is '10x'; write a number such as 300B"),
        (("--tokens", "-1"), "must be positive"),
        (("--tokens", "1.7e308", "--json"), "none above 1e+20"),
        (("--tokens", "1B", "--price", "1e308"), "price=1e+308 is not possible"),
        (("--tokens", "1B", "--mfu", "1e-300"), "mfu=1e-300 is not possible"),
        (("--tokens", "1B", "--mfu", "40"), "mfu=40 is not possible"),
        (("--tokens", "1B", "--devices", "0"), "Invalid value for '--devices'"),
        (("--tokens", "1B", "--device", "a100", "device=cpu"), "both say where the step runs"),
        (("--tokens", "1B", "--nproc", "2"), "No such option: --nproc"),
    ],
)
def test_bad_input_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("cost", "gpt2-124m", *words)
    assert said.code == 2
    assert says in said.sentence()
