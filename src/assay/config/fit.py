"""Whether a model can start from another's weights: which fields must be alike, and what a run takes over unasked.

A field that nobody has set takes the checkpoint's value; a preset's shape gives way, since who names a checkpoint
beside a preset means its training. A field that was set in a file or an override must be the checkpoint's. Everything
that is not is listed at once, as overrides that can be pasted.
"""

from typing import Any

from assay.config.model import ModelConfig
from assay.errors import UsageError

FUNCTION = (
    *("n_layer", "n_head", "n_embd", "vocab_size", "n_kv_head", "n_hidden", "bias", "norm", "norm_position"),
    *("position", "rotary_base", "activation", "n_expert", "n_expert_active", "qk_norm", "tie_embeddings"),
)
"""Fields of the function that a model computes, whatever it was trained for."""

SHAPE = (*FUNCTION, "context_length")
"""Fields that a run takes over from the model whose weights it starts from."""


def adopted(ours: ModelConfig, theirs: ModelConfig) -> ModelConfig:
    """Our configuration with the checkpoint's values in the fields of its function that nobody has set."""
    taken = {
        name: getattr(theirs, name)
        for name in SHAPE
        if name not in ours.model_fields_set and getattr(theirs, name) is not None
    }
    return ours.model_copy(update=taken)


def disagreements(ours: ModelConfig, theirs: ModelConfig, *, hugging_face: bool) -> dict[str, Any]:
    """Fields in which our model is another function than the checkpoint's, with the checkpoint's values.

    Of a Hugging Face checkpoint our context may be shorter, and biases are checked when they are read: missing ones are
    zero there, and zeros may be left out here.
    """
    pairs = {name: (getattr(ours, name), getattr(theirs, name)) for name in FUNCTION}
    pairs["n_kv_head"] = ours.kv_heads, theirs.kv_heads
    pairs["n_hidden"] = ours.hidden, theirs.hidden
    if hugging_face:
        del pairs["bias"]
    if ours.position == theirs.position == "learned":
        pairs["context_length"] = ours.context_length, theirs.context_length
        if hugging_face and ours.context_length <= theirs.context_length:
            del pairs["context_length"]
    if ours.vocab_size is None:
        del pairs["vocab_size"]
    if ours.position != "rotary":
        del pairs["rotary_base"]
    if ours.n_expert is None:
        del pairs["n_expert_active"]
    return {name: has for name, (wants, has) in pairs.items() if has != wants}


def check_fit(ours: ModelConfig, theirs: ModelConfig, source: object, *, hugging_face: bool) -> None:
    """Raise `UsageError` with everything in which our configuration is not that of the checkpoint `source`."""
    found = disagreements(ours, theirs, hugging_face=hugging_face)
    if found:
        wanted = " ".join(f"model.{name}={_plain(value)}" for name, value in found.items())
        now = ", ".join(_plain(getattr(ours, name)) for name in found)
        raise UsageError(f"the weights of {source} do not fit the configuration; set {wanted} (now {now})")


def _plain(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
