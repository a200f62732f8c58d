"""Configurations drawn at random: every variant of the model, small enough to build in milliseconds."""

from hypothesis import strategies as st

from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec

FOUR = (
    Spec(name="sdpa_attention"),
    Spec(name="bf16_mixed"),
    Spec(name="activation_checkpointing", fields={"every": 2}),
    Spec(name="gradient_accumulation", fields={"micro_batches": 2}),
)


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
        context_length=draw(st.sampled_from([2, 7, 16])),
        vocab_size=draw(st.integers(3, 70)),
        bias=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.0, 0.1])) if dropout else 0.0,
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_position=draw(st.sampled_from(["pre", "post"])),
        position=draw(st.sampled_from(["learned", "rotary"])),
        activation=draw(st.sampled_from(["gelu", "gelu_tanh", "swiglu"])),
        qk_norm=draw(st.booleans()),
        tie_embeddings=draw(st.booleans()),
    )


@st.composite
def runs(draw: st.DrawFn, optimizations: tuple[Spec, ...] = (), *, dropout: bool = True) -> Run:
    """A run of one of those, with a batch that two micro-batches divide."""
    return Run(
        model=draw(model_configs(dropout=dropout)),
        training=TrainingConfig(batch_size=draw(st.sampled_from([2, 4, 6]))),
        device="cpu",
        optimizations=optimizations,
    )
