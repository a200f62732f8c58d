"""Every number of an answer once more, in plain lines beside the package: ten questions on the cost of a training.

Parameters are counted by hand, FLOPs by PaLM's formula, hours and money by arithmetic, the need by its parts, and the
largest batch by asking for it and for one more.
"""

from math import ceil
from typing import Any, NamedTuple

import pytest

from cli.conftest import Assay


class Shape(NamedTuple):
    """A model by its published dimensions."""

    layers: int
    width: int
    hidden: int
    words: int
    context: int
    key_values: int = 0
    """Width of keys and of values; 0: that of the model, in a GPT-2 with biases and learned positions."""
    biased: bool = False
    """True if a Llama's queries, keys and values have biases, as Qwen2's have."""

    @property
    def parameters(self) -> int:
        """Parameters, with tied embeddings."""
        h = self.width
        if not self.key_values:
            block = 4 * h * h + 2 * h * self.hidden + (3 * h + h + self.hidden + h) + 4 * h
            return self.words * h + self.context * h + self.layers * block + 2 * h
        biases = h + 2 * self.key_values if self.biased else 0
        block = 2 * h * h + 2 * h * self.key_values + biases + 3 * h * self.hidden + 2 * h
        return self.words * h + self.layers * block + h


class Asked(NamedTuple):
    """A question."""

    preset: str
    shape: Shape
    device: str
    peak: float
    """FLOP/s of dense products in 16 bits, by the datasheet."""
    seen: int
    """MiB that torch sees."""
    stack: str
    batch: int
    tokens: float
    devices: int
    price: float


SMALL, MEDIUM = Shape(12, 768, 3072, 50257, 1024), Shape(24, 1024, 4096, 50257, 1024)
LARGE, XL = Shape(36, 1280, 5120, 50257, 1024), Shape(48, 1600, 6400, 50257, 1024)
LLAMA = Shape(16, 2048, 8192, 128256, 8192, 512)
QWEN = Shape(24, 896, 4864, 151936, 4096, 128, biased=True)
FAST, CUT = "bf16_mixed+sdpa_attention", "gradient_accumulation:micro_batches=2"
QUESTIONS = (
    Asked("gpt2-124m", SMALL, "a100-40gb", 312e12, 40339, f"{FAST}+compile", 12, 36.9e9, 1, 1.5),
    Asked("gpt2-124m", SMALL, "t4", 65e12, 14909, "fp16_mixed+sdpa_attention", 4, 1e9, 2, 0.35),
    Asked("gpt2-124m", SMALL, "rtx4090", 165.2e12, 24207, "", 8, 1e9, 1, 0.4),
    Asked("gpt2-124m", SMALL, "h100", 989e12, 81089, f"{FAST}+fused_adamw", 64, 10e9, 8, 2.5),
    Asked("gpt2-350m", MEDIUM, "l4", 121e12, 22558, FAST, 4, 7e9, 1, 0.8),
    Asked("gpt2-774m", LARGE, "rtx3090", 71e12, 24268, f"{FAST}+activation_checkpointing", 2, 15e9, 1, 0.2),
    Asked("gpt2-1558m", XL, "a100", 312e12, 81049, f"{FAST}+activation_checkpointing", 8, 31e9, 8, 1.75),
    Asked("llama-3.2-1b", LLAMA, "h200", 989e12, 143771, f"{FAST}+fused_adamw", 2, 25e9, 4, 3.5),
    Asked("qwen2.5-0.5b", QWEN, "rtx5090", 209.5e12, 32117, f"{FAST}+chunked_cross_entropy", 2, 10e9, 1, 0.9),
    Asked(
        "gpt2-124m", SMALL, "v100", 125e12, 32501, "fp16_mixed+gradient_accumulation:micro_batches=2", 8, 2e9, 1, 1.0
    ),
)


QUICK = ("t4", "v100")
"""Devices whose question the quick suite asks."""


@pytest.mark.parametrize(
    "asked",
    [pytest.param(one, marks=() if one.device in QUICK else pytest.mark.slow) for one in QUESTIONS],
    ids=lambda one: f"{one.preset} on {one.device}",
)
def test_an_answer_is_what_arithmetic_says(assay: Assay, asked: Asked) -> None:
    words = (asked.preset, f"training.batch_size={asked.batch}", "--device", asked.device)
    words += ("--with", asked.stack) if asked.stack else ()
    step: dict[str, Any] = assay("estimate", *words, "--json").value
    costs = ("--tokens", f"{asked.tokens:g}", "--devices", str(asked.devices), "--price", str(asked.price))
    cost: dict[str, Any] = assay("cost", *words, *costs, "--json").value
    shape, each = asked.shape, asked.batch * asked.shape.context
    assert step["parameters"] == shape.parameters
    assert step["parameter_bytes"] == 4 * shape.parameters
    assert step["tokens_per_step"] == each
    seconds, margin = step["step_seconds"], step["step_seconds_margin"]
    whole = ceil(asked.tokens / (each * asked.devices)) * seconds  # the last step is whole, too
    training = cost["training"]
    assert training["seconds"] == pytest.approx(whole)
    assert training["hours"] == pytest.approx([whole * (1 - margin) / 3600, whole * (1 + margin) / 3600])
    assert training["device_hours"] == pytest.approx([one * asked.devices for one in training["hours"]])
    assert training["money"] == pytest.approx([one * asked.price for one in training["device_hours"]])
    palm = 6 * shape.parameters + 12 * shape.layers * shape.width * shape.context
    if not shape.key_values:  # positions are looked up, as words are, but PaLM counts all parameters
        assert cost["flops"]["PaLM"] == pytest.approx(palm * asked.tokens, rel=0.01)
    used = cost["flops"]["PaLM"] / (training["seconds"] * asked.devices * asked.peak)
    assert cost["mfu"] == pytest.approx(used)
    assert cost["mfu_between"] == pytest.approx([used / (1 + margin), used / (1 - margin)])
    assert used < 1
    _room(assay, asked, step)


def _room(assay: Assay, asked: Asked, step: dict[str, Any]) -> None:
    """Compare the need with its parts, and the largest batch with the needs of it and of one more."""
    fit, memory = step["fit"], step["device_memory"]
    assert fit["memory_bytes"] == asked.seen * 2**20
    assert fit["need_bytes"]["low"] == memory["reserved_bytes"]["low"] + 700_000_000
    assert fit["need_bytes"]["high"] == memory["reserved_bytes"]["high"] + 790_000_000
    least = 4 * asked.shape.parameters * (4 if step["tensors_peak_instant"].startswith("update") else 3)
    assert fit["need_bytes"]["low"] > least
    low, high, room = fit["need_bytes"]["low"], fit["need_bytes"]["high"], asked.seen * 2**20
    assert fit["verdict"] == ("fits" if high <= room else "may fit" if low <= room else "does not fit")
    micro = 2 if "micro_batches=2" in asked.stack else 1
    assert fit["batch"] == {"sequences": asked.batch, "context": asked.shape.context, "micro_batches": micro}


@pytest.mark.slow
@pytest.mark.parametrize("asked", QUESTIONS[1:4], ids=lambda one: f"{one.preset} on {one.device}")
def test_the_largest_batch_fits_and_one_more_does_not(assay: Assay, asked: Asked) -> None:
    stack = ("--with", asked.stack) if asked.stack else ()
    found = assay("capacity", asked.preset, "--device", asked.device, *stack, "--json").value["largest"][0]
    words = (asked.preset, "--device", asked.device, *stack, "--json")
    counts = (found["value"], found["value"] + 1)
    needs = [assay("estimate", *words, f"training.batch_size={count}").value for count in counts]
    assert [one["fit"]["verdict"] == "fits" for one in needs] == [True, False]
