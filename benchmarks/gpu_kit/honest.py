"""Honest runs against their references: each is trained for some steps, recorded, and judged as a run's proof does.

They run side by side, because no time is measured. What is refused is a bound that is too narrow, or a fault.
"""

import random
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from taking import Given, Result, device

_STACKS = (
    "bf16_mixed",
    "bf16_mixed+sdpa_attention:backend=flash",
    "bf16_mixed+sdpa_attention:backend=flash+fused_adamw+vocab_padding:multiple=64",
    "bf16_mixed+sdpa_attention:backend=cudnn",
    "fp16_mixed",
    "bf16_full",
    "bf16_full+fused_adamw",
    "tf32",
    "sdpa_attention:backend=efficient",
    "activation_checkpointing",
    "selective_checkpointing+bf16_mixed",
    "gradient_accumulation:micro_batches=4",
    "chunked_cross_entropy+bf16_mixed",
    "foreach_adamw",
    "lion",
)
_ON_CPU = ("bf16_mixed", "activation_checkpointing", "gradient_accumulation:micro_batches=2")


def items(given: Given) -> Mapping[str, Callable[[], Result]]:
    """Two runs of each stack: a small model with dropout after many steps, and GPT-2's shape after few."""
    found: dict[str, Callable[[], Result]] = {}
    for number, stack in enumerate(_ON_CPU if given.tiny else _STACKS):
        for deep in (False, True):
            found[f"{stack} {'GPT-2' if deep else 'small'}"] = partial(_judged, stack, deep, number, given.tiny)
    return found


def _judged(stack: str, deep: bool, number: int, tiny: bool) -> Result:
    from assay.config import ModelConfig, Run, TrainingConfig
    from assay.config.run import Spec
    from assay.optimizations import resolve_run
    from assay.training.loop import read, take_step
    from assay.values.check import check_values
    from assay.values.recorded import Recorded
    from support.random_data import RandomData
    from support.steps import build_step
    from values.recording import record_steps

    dice = random.Random(number)
    width, layers = (768, 12) if deep and not tiny else (64, 2)
    model = ModelConfig(
        n_layer=layers,
        n_head=width // 64 if width > 64 else 2,
        n_embd=width,
        context_length=32 if tiny else 256,
        vocab_size=997,
        dropout=0.0 if deep else 0.1,
    )
    rate = dice.choice([0.0003, 0.001, 0.003])
    training = TrainingConfig(batch_size=4, steps=64, warmup_steps=2, learning_rate=rate, min_learning_rate=rate / 10)
    specs = tuple(Spec.parse(one) for one in stack.split("+"))
    run = resolve_run(Run(model=model, training=training, device=device().type, seed=number, optimizations=specs))
    data, first = RandomData(run), 3 if deep or tiny else 40
    step = build_step(run, data)
    torch.manual_seed(run.seed)
    for index in range(first):
        read(step, [take_step(step, index)])
    with tempfile.TemporaryDirectory() as folder:
        record_steps(step, run, Path(folder), first=first)
        proof = check_values(Recorded(Path(folder), device=device()), run, data, device())  # type: ignore[arg-type]
    return {
        "verdict": proof.verdict,
        "failures": list(proof.failures),
        "used": proof.used,
        "loss_error": proof.loss_error,
        "gradient_error": proof.gradient_error,
        "update_error": proof.update_error,
        "baseline_steps": proof.baseline_steps,
        "without_dropout": proof.without_dropout,
        "half_repeated_masks": proof.half_repeated_masks,
        "peak_bytes": torch.cuda.max_memory_allocated() if device().type == "cuda" else None,
    }
