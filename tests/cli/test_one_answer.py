"""One question has one answer: verbs print the same need, batch, verdict, step time, hours and money for their part."""

from typing import Any

import pytest

from cli.conftest import Assay

QUESTIONS = (
    ("demo", ("optimizations=[sdpa_attention,fp16_mixed,compile]",), "t4"),
    ("llama-tiny", (), "h200"),
    ("shakespeare-char-cpu", ("model.vocab_size=65",), "a100-40gb"),
    ("gpt2-124m", (), "rtx4090"),
)
TOKENS, PRICE = "2B", "1.5"


def _ask(assay: Assay, *words: str) -> dict[str, Any]:
    said = assay(*words, "--json")
    assert said.code == 0, said.sentence()
    value: dict[str, Any] = said.value
    return value


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "changes", "device"), QUESTIONS)
def test_every_verb_prints_the_figures_of_the_others(
    assay: Assay, preset: str, changes: tuple[str, ...], device: str
) -> None:
    asked = (preset, *changes)
    advice = _ask(assay, "recommend", *asked, "--device", device, "--tokens", TOKENS, "--price", PRICE)
    best = advice["recommended"]
    stack = ("--with", best["optimizations"]) if best["optimizations"] else ()
    step = _ask(assay, "estimate", *asked, "--device", device, *stack)
    room = _ask(assay, "capacity", *asked, "--device", device, *stack)
    cost = _ask(assay, "cost", *asked, "--device", device, *stack, "--tokens", TOKENS, "--price", PRICE)
    assert step["step_seconds"] == best["step_seconds"] == cost["training"]["step_seconds"]
    assert step["step_seconds_margin"] == best["step_seconds_margin"]
    assert step["fit"]["batch"] == best["batch"] == cost["batch"]
    assert step["fit"]["need_bytes"]["high"] == best["need_bytes"] == room["largest"][0]["configured_bytes"]
    assert step["fit"]["memory_bytes"] == advice["budget_bytes"] == room["memory_bytes"]
    assert (step["fit"]["verdict"], best["fits"]) == ("fits", True)
    assert advice["largest_batch"] == room["largest"][0]["value"] >= best["batch"]["sequences"]
    assert advice["training"] == cost["training"]


def test_a_part_that_does_not_fit_is_said_alike(assay: Assay) -> None:
    words = ("gpt2-1558m", "--device", "t4", "--with", "fp16_mixed")
    step, room = _ask(assay, "estimate", *words), _ask(assay, "capacity", *words)
    cost = _ask(assay, "cost", *words, "--tokens", TOKENS)
    assert step["fit"]["verdict"] == "does not fit"
    assert cost["fit"] == step["fit"]
    said = assay("cost", *words, "--tokens", TOKENS).out
    assert said.startswith("A step does not fit its device; without that limit, on 1 × T4 with fp16_mixed, ")
    assert room["largest"][0]["configured_bytes"] == step["fit"]["need_bytes"]["high"] > room["memory_bytes"]
