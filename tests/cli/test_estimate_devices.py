"""`assay estimate --inference` and `--tokens`: the reports, their JSON, and bad input as one sentence."""

import pytest

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
    assert (value["tokens"], value["devices"], value["mfu"]) == (1e10, 8, 0.4)
    assert value["money"] == pytest.approx(value["device_hours"] * 2.5)


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
    ],
)
def test_what_cannot_be_predicted_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", "gpt2-124m", *words)
    assert said.code == 2
    assert says in said.sentence()


def test_help_names_every_device(assay: Assay) -> None:
    """It is written out, because help must not load the devices."""
    said = " ".join(assay("estimate", "--help").out.split())
    assert f"a datasheet: {', '.join(DEVICES)}." in said
