"""Runs as tests configure them: by technique, by variant of the model, drawn at random, and as a folder on disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from assay.config import ModelConfig, ResolvedRun, Run, TrainingConfig, identity, validate
from assay.config.run import Spec
from assay.data import Prepared
from assay.optimizations import Stage, catalogue, resolve, resolve_run
from assay.store.run_folder import RunFolder, RunSpec

SHAPE = ModelConfig(n_layer=4, n_head=2, n_embd=32, context_length=16, vocab_size=61)
UNTIED = SHAPE.model_copy(update={"tie_embeddings": False})
"""Its output projection has a weight of its own, which `mup` needs."""

VARIANTS = {
    "baseline": SHAPE,
    "dropout": SHAPE.model_copy(update={"dropout": 0.1}),
    "post": SHAPE.model_copy(update={"norm_position": "post", "bias": False}),
    "rotary": SHAPE.model_copy(update={"position": "rotary", "activation": "swiglu", "norm": "rms"}),
    "untied": SHAPE.model_copy(update={"tie_embeddings": False, "qk_norm": True, "n_kv_head": 1}),
}

ON_ONE_DEVICE = [name for name in catalogue() if not resolve(Spec(name=name)).axes()]
"""The others divide a step over ranks, and are tested there (`tests/parallel`)."""

FOUR = (
    Spec(name="sdpa_attention"),
    Spec(name="bf16_mixed"),
    Spec(name="activation_checkpointing", fields={"every": 2}),
    Spec(name="gradient_accumulation", fields={"micro_batches": 2}),
)


def marked(*names: str) -> list[pytest.MarkDecorator]:
    """The marks of a test of these optimizations: what compiles takes half a minute to begin."""
    return [pytest.mark.slow] if any(catalogue()[name].stage is Stage.COMPILE for name in names) else []


ONE_BY_ONE = [pytest.param(name, marks=marked(name)) for name in ON_ONE_DEVICE]


def specs_of(names: Sequence[str]) -> tuple[Spec, ...]:
    """Optimizations at their defaults, by name."""
    return tuple(resolve(Spec(name=name)).spec() for name in names)


def run_with(*specs: Spec, model: ModelConfig = SHAPE, ranks: int = 1) -> Run:
    """A run of four sequences a step, not clipped: some techniques cannot."""
    training = TrainingConfig(batch_size=4, steps=5, warmup_steps=1, gradient_clip=0.0)
    return resolve_run(Run(model=model, training=training, device="cpu", ranks=ranks, optimizations=specs))


def without(run: Run, names: Sequence[str] = ()) -> Run:
    """The same run with only the optimizations in `names`."""
    return run.model_copy(update={"optimizations": tuple(spec for spec in run.optimizations if spec.name in names)})


def tiny(training: dict[str, Any] | None = None, **model: Any) -> ResolvedRun:
    """A run of a two-layer model of width 16 on bytes."""
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, "vocab_size": 256}
    values = {"batch_size": 4, "steps": 6, "warmup_steps": 2, "eval_interval": 0, "eval_batches": 2}
    values = {"model": {**shape, **model}, "training": {**values, **(training or {})}, "device": "cpu"}
    return resolve_run(validate(values))


def deep_run(stack: str, ranks: int = 2, **model: int) -> Run:
    """A run of eight blocks, which a pipeline of two or four ranks divides evenly."""
    shape = {"n_layer": 8, "n_head": 2, "n_embd": 32, "context_length": 16, "vocab_size": 65, **model}
    training = {"batch_size": 8, "steps": 2, "warmup_steps": 1}
    return validate({"model": shape, "training": training, "ranks": ranks, "optimizations": stack.split("+")})


def run_folder(path: Path, corpus: Prepared, training: dict[str, Any], **run: Any) -> RunFolder:
    """The folder of a run of a two-layer model of width 16, as the launcher leaves it."""
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, "vocab_size": 256}
    values = {"batch_size": 4, "eval_interval": 0, "eval_batches": 2, "measure_memory": False}
    model = {**shape, **run.pop("model", {})}
    plain = {"model": model, "training": {**values, **training}, "device": "cpu", "threads": 1, **run}
    config = resolve_run(validate(plain))
    folder = RunFolder(path)
    folder.prepare(
        RunSpec(
            id=folder.id,
            created="2026-11-21T08:00:00+00:00",
            identity=identity(config),
            config=config,
            data_folder=str(corpus.folder),
        )
    )
    return folder


variants = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["layer", "rms"]),
        "norm_position": st.sampled_from(["pre", "post"]),
        "position": st.sampled_from(["learned", "rotary"]),
        "activation": st.sampled_from(["gelu", "gelu_tanh", "swiglu", "squared_relu"]),
        "logit_softcap": st.sampled_from([None, None, 0.5]),
        "bias": st.booleans(),
        "qkv_bias": st.sampled_from([None, None, True, False]),
        "qk_norm": st.booleans(),
        "tie_embeddings": st.booleans(),
    }
)
"""Variants of a block, as fields of a `ModelConfig`."""


@st.composite
def model_configs(draw: st.DrawFn, *, dropout: bool = True) -> ModelConfig:
    """Any shape and variant, one head and one key head among them; a context of one token predicts nothing."""
    n_head = draw(st.sampled_from([1, 2, 4, 6]))
    head_dim = draw(st.sampled_from([2, 4, 8]))
    return ModelConfig(
        n_layer=draw(st.integers(2, 3)),
        n_head=n_head,
        n_kv_head=draw(st.sampled_from([count for count in (1, 2, 3, 6) if n_head % count == 0])),
        n_embd=n_head * head_dim,
        n_head_dim=draw(st.sampled_from([None, None, 2, 6])),
        context_length=draw(st.sampled_from([2, 7, 16])),
        vocab_size=draw(st.integers(3, 70)),
        dropout=draw(st.sampled_from([0.0, 0.0, 0.1])) if dropout else 0.0,
        **draw(variants),
    )


@st.composite
def drawn_runs(draw: st.DrawFn, optimizations: tuple[Spec, ...] = (), *, dropout: bool = True) -> Run:
    """A run of one of those, with a batch that two micro-batches divide."""
    return Run(
        model=draw(model_configs(dropout=dropout)),
        training=TrainingConfig(batch_size=draw(st.sampled_from([2, 4, 6]))),
        device="cpu",
        optimizations=optimizations,
    )
