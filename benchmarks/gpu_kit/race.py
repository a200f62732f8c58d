"""nanoGPT's step beside ours: blocks of ten steps take turns in one process, on batches that each makes anew.

The shape is GPT-2 124M without biases, 12 sequences of 1,024 tokens, in bfloat16 with clipping. Both are compiled.
"""

import contextlib
import io
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from taking import Given, Result, clocks, device

_PAIRS, _STEPS = 20, 10
_STACK = "bf16_mixed+sdpa_attention:backend={kernel}+fused_adamw+vocab_padding:multiple=64"
_VARIANTS = {
    "plain step, by blocks": _STACK.format(kernel="flash") + "+compile",
    "prefetching, by blocks": _STACK.format(kernel="flash") + "+compile+pinned_prefetch",
    "cuDNN's attention, by blocks": _STACK.format(kernel="cudnn") + "+compile",
    "cuDNN's attention, prefetching, by blocks": _STACK.format(kernel="cudnn") + "+compile+pinned_prefetch",
    "eager": _STACK.format(kernel="flash"),
}
_ON_CPU = {"bfloat16": "bf16_mixed+sdpa_attention+fused_adamw"}


def items(given: Given) -> Mapping[str, Callable[[], Result]]:
    """One race for each variant of ours; without nanoGPT's model ours runs alone."""
    variants = _ON_CPU if given.tiny else _VARIANTS
    return {name: partial(_raced, stack, given.beside, given.tiny) for name, stack in variants.items()}


def _raced(stack: str, beside: str, tiny: bool) -> Result:
    shape = (2, 2, 64, 32, 2, 1001) if tiny else (12, 12, 768, 1024, 12, 50257)
    steps = {"ours": _ours(stack, shape)}
    if (Path(beside) / "model.py").exists() and beside:
        steps["theirs"] = _theirs(beside, shape, compiled="compile" in stack)
    for step in steps.values():
        for index in range(3):
            step(index)
    found: Result = {name: [] for name in steps} | {"clocks": []}
    for pair in range(2 if tiny else _PAIRS):
        for name, step in steps.items():
            found[name].append(_block(step, 3 + pair * _STEPS))
        found["clocks"].append(clocks())
    return found


def _block(step: Callable[[int], object], first: int) -> float:
    """Seconds of a step, over a block between two synchronizations."""
    wait = torch.cuda.synchronize if device().type == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    for index in range(first, first + _STEPS):
        step(index)
    wait()
    return (time.perf_counter() - start) / _STEPS


def _ours(stack: str, shape: tuple[int, ...]) -> Callable[[int], object]:
    from assay.config import ModelConfig, Run, TrainingConfig
    from assay.config.run import Spec
    from assay.optimizations import resolve_run
    from assay.training.loop import read, take_step
    from support.steps import build_step

    layers, heads, width, length, rows, words = shape
    model = ModelConfig(
        n_layer=layers, n_head=heads, n_embd=width, context_length=length, vocab_size=words, bias=False, dropout=0.0
    )
    training = TrainingConfig(batch_size=rows, steps=1000, warmup_steps=10)
    specs = tuple(Spec.parse(one) for one in stack.split("+"))
    run = resolve_run(Run(model=model, training=training, device=device().type, optimizations=specs))
    torch.manual_seed(run.seed)
    built, unread = build_step(run), []

    def step(index: int) -> None:
        unread.append(take_step(built, index))
        if len(unread) >= built.program.figures.read_every:
            read(built, unread)
            unread.clear()

    return step


def _theirs(beside: str, shape: tuple[int, ...], *, compiled: bool) -> Callable[[int], object]:
    """nanoGPT's training loop, without its log: batches from pinned memory, autocast, clipping, fused AdamW."""
    sys.path.insert(0, beside)
    from model import GPT, GPTConfig

    layers, heads, width, length, rows, words = shape
    config = GPTConfig(
        block_size=length, vocab_size=words, n_layer=layers, n_head=heads, n_embd=width, dropout=0.0, bias=False
    )
    kind = device().type
    with contextlib.redirect_stdout(io.StringIO()):
        plain = GPT(config).to(device())
        optimizer = plain.configure_optimizers(0.1, 6e-4, (0.9, 0.95), kind)
    model = torch.compile(plain) if compiled else plain
    text = torch.randint(min(words, 50257), (1_000_000,))

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.randint(len(text) - length - 1, (rows,)).tolist()
        parts = [torch.stack([text[one + off : one + off + length] for one in places]) for off in (0, 1)]
        if kind == "cuda":
            parts = [one.pin_memory().to(device(), non_blocking=True) for one in parts]
        return parts[0], parts[1]

    ahead = [batch()]

    def step(index: int) -> None:
        ids, targets = ahead.pop()
        with torch.autocast(kind, dtype=torch.bfloat16):
            _logits, loss = model(ids, targets)
        ahead.append(batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
