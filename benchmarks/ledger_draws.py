"""Runs that are drawn from a number, GPT- and Llama-shaped, for a GPU that may be absent."""

import random

from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware.devices import absent_machine

MACHINE = absent_machine("h200")

_RECOMPUTED = ("activation_checkpointing", "activation_checkpointing:every=2", "selective_checkpointing")
_MEMORY = ("", "", *_RECOMPUTED, "selective_checkpointing:policy=matmuls")
_KERNELS = ("flash", "efficient", "cudnn", "math")
_ATTENTION = ("", "", "sdpa_attention", *(f"sdpa_attention:backend={one}" for one in _KERNELS))
_PRECISION = ("", "", "", "bf16_mixed", "bf16_mixed", "bf16_full", "fp16_mixed", "fp16_full", "tf32")
_LOSS = ("", "", "chunked_cross_entropy", "chunked_cross_entropy:chunks=3")
_BATCH = ("", "", "gradient_accumulation:micro_batches=2", "gradient_accumulation:micro_batches=4")
_ADAM = ("", "", "fused_adamw", "foreach_adamw", "adam", "adamw_bf16_state")
_OPTIMIZER = (*_ADAM, "sgd", "sgd:momentum=0", "lion", "adafactor", "muon")
_OTHERS = ("", "", "", "vocab_padding", "weight_tying", "optimizer_in_backward", "deferred_metrics")
STACKS = (_MEMORY, _ATTENTION, _PRECISION, _LOSS, _BATCH, _OPTIMIZER, _OTHERS)
"""Techniques of which one of each is drawn."""
_LLAMAS = 0.4
"""Share of the models that are Llama-shaped."""


def drawn(number: int) -> Run:
    """A run that can be had, the same for the same number."""
    return _first(random.Random(number), ())


def drawn_with(technique: str, number: int) -> Run:
    """The same with a technique that cannot be traced, such as ``compile``."""
    return _first(random.Random(f"{technique} {number}"), (technique,))


def drawn_mixture(number: int) -> Run:
    """A run with experts whose step hangs on no routing: grouped products, or a capacity."""
    return _first(random.Random(f"mixture {number}"), (), experts=True)


def _first(draw: random.Random, beside: tuple[str, ...], *, experts: bool = False) -> Run:
    while True:
        run = _with_experts(draw, _any(draw, beside)) if experts else _any(draw, beside)
        try:
            estimate(run, MACHINE)
        except UsageError:
            continue
        return run


def _any(draw: random.Random, beside: tuple[str, ...]) -> Run:
    model = _model(draw, llama=draw.random() < _LLAMAS)
    chosen = [*(draw.choice(choices) for choices in STACKS), *beside]
    specs = tuple(Spec.parse(one) for one in chosen if one)
    # The steps that are traced keep no figures of earlier ones.
    training = TrainingConfig(batch_size=draw.choice((1, 2, 4, 8, 12, 32)), read_every=1)
    return Run(model=model, training=training, device="cuda", optimizations=specs)


def _with_experts(draw: random.Random, run: Run) -> Run:
    model = run.model.model_copy(
        update={
            "n_expert": draw.choice((2, 4, 8)),
            "n_expert_active": draw.choice((1, 2)),
            "expert_capacity": draw.choice((None, 1.25)),
            "dropout": 0.0,
        }
    )
    if model.expert_capacity is not None:
        return run.model_copy(update={"model": model})
    kept = [one for one in run.optimizations if str(one) not in _PRECISION]
    narrow = Spec.parse(draw.choice(("bf16_mixed", "bf16_full")))
    return run.model_copy(update={"model": model, "optimizations": (*kept, narrow)})


def _model(draw: random.Random, *, llama: bool) -> ModelConfig:
    """A Llama has rotary positions, RMS norms, gated MLPs, grouped queries and no dropout; others have any of them."""
    n_head, width = draw.choice((1, 2, 3, 4, 6, 12)), draw.choice((8, 16, 32, 64, 64, 128))
    return ModelConfig(
        n_layer=draw.randint(1, 4),
        n_head=n_head,
        n_kv_head=_grouped(draw, n_head) if llama or draw.random() < 0.2 else None,
        n_embd=n_head * width,
        context_length=draw.choice((8, 33, 64, 100, 256, 339, 512, 1000)),
        vocab_size=draw.choice((17, 65, 300, 1000, 5003, 50257)),
        bias=False if llama else draw.random() < 0.6,
        dropout=0.0 if llama else draw.choice((0.0, 0.0, 0.1, 0.25)),
        norm="rms" if llama else draw.choice(("layer", "layer", "rms")),
        norm_position="pre" if llama else draw.choice(("pre", "pre", "post")),
        position="rotary" if llama else draw.choice(("learned", "learned", "rotary")),
        activation="swiglu" if llama else draw.choice(("gelu", "gelu_tanh", "swiglu")),
        qk_norm=draw.random() < 0.25,
        tie_embeddings=draw.random() < 0.6,
    )


def _grouped(draw: random.Random, n_head: int) -> int:
    return draw.choice([count for count in (1, 2, 3, 6, 12) if n_head % count == 0])
