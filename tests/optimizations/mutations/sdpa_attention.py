"""Fused attention, wrong."""

from torch.nn.attention import SDPBackend

from optimizations.mutations.mutant import Mutant, rewritten

_FORWARD = "assay.model.attention:SdpaAttention.forward"
_APPLY = "assay.optimizations.sdpa_attention:SdpaAttention.apply"
_CALL = "F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)"
_LAYERS = "for module in part.modules():"
_MATH = ("nullcontext() if self.backend is None else sdpa_kernel(self.backend)", "sdpa_kernel(math)")
_BY_HAND = "(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5 + mask(q)).softmax(-1) @ v"


def _mask(q):  # type: ignore[no-untyped-def]
    return q.new_full((q.size(-2), q.size(-2)), float("-inf")).triu(1)


MUTANTS = (
    Mutant(
        "other scale",
        "Scores are divided by the width of a head, and not by its root.",
        rewritten(_FORWARD, (_CALL, _CALL.replace("is_causal=True", "is_causal=True, scale=1 / q.size(-1)"))),
    ),
    Mutant(
        "scale of the model",
        "Scores are divided by the root of the model's width.",
        rewritten(
            _FORWARD, (_CALL, _CALL.replace("is_causal=True", "is_causal=True, scale=(q.size(1) * q.size(-1)) ** -0.5"))
        ),
    ),
    Mutant(
        "sees the future",
        "Positions see all later ones.",
        rewritten(_FORWARD, ("is_causal=True", "is_causal=False")),
    ),
    Mutant(
        "values without gradients",
        "No gradient flows to the values.",
        rewritten(_FORWARD, ("attention(q, k, v,", "attention(q, k, v.detach(),")),
    ),
    Mutant(
        "groups mixed up",
        "Grouped keys and values go to the wrong query heads.",
        rewritten(
            _FORWARD,
            ("x.repeat_interleave(q.size(1) // k.size(1), dim=1)", "x.repeat(1, q.size(1) // k.size(1), 1, 1)"),
        ),
        {"model": {"n_head": 4, "n_kv_head": 2}},
    ),
    Mutant(
        "first layer only",
        "Only the first layer is fused.",
        rewritten(
            _APPLY, (_LAYERS, "for module in [one for one in part.modules() if isinstance(one, Attention)][:1]:")
        ),
    ),
    Mutant(
        "last layer forgotten",
        "The last layer writes its scores out.",
        rewritten(
            _APPLY, (_LAYERS, "for module in [one for one in part.modules() if isinstance(one, Attention)][:-1]:")
        ),
    ),
    Mutant(
        "keys rounded",
        "Keys are rounded to 16 bits.",
        rewritten(_FORWARD, ("attention(q, k, v,", "attention(q, k.bfloat16().to(k.dtype), v,")),
    ),
    Mutant(
        "math late",
        "Late in the run torch's unfused kernel takes over.",
        rewritten(_FORWARD, _MATH, late=True, math=SDPBackend.MATH),
        late=True,
    ),
    Mutant(
        "by hand late",
        "Late in the run the scores are written out.",
        rewritten(_FORWARD, (_CALL, _BY_HAND), late=True, mask=_mask),
        late=True,
    ),
)
