"""Published closed forms of a GPT on many devices, in the papers' own letters: for models too large to run here.

The ledger (`cost.step_cost`) counts every tensor of one device. These forms count what dominates at scale. Published
tables were made with them, so a plan can be compared with those. The letters are: L layers, width h, a heads, sequence
s, batch B or micro-batch b, vocabulary V, t tensor-parallel ranks, c context-parallel ranks.

- FLOPs of one forward: 24BLsh² (1 + s/6h) + 2BshV. Backward is twice that. Recomputing everything adds the layers'
  forward once more, which is equation 3 of arXiv:2104.04473. Its rate of FLOP/s includes them, so it is not an MFU.
- Training takes 8TP/(nX) seconds for T tokens, P parameters, n devices of X FLOP/s with full recomputation (there,
  equation 4).
- Activations of a layer (arXiv:2205.05198, table 2): 16-bit, with dropout, and with explicit attention scores. A
  context axis is not in that paper: its ranks hold a c-th of the sequence, and of the scores as many rows.
- Recomputing only attention's core adds its forward, 4BLs²h. The hardware FLOPs of that paper add three times as much,
  so its HFU is up to one point above ours.
- Mixed-precision Adam holds 2 + 2 + 12 bytes a parameter, of which ZeRO's stages divide the last, the last two, or all
  (arXiv:1910.02054). Megatron-LM's gradients in 32 bits are 2 more.
"""

from typing import Literal

from assay.config import ModelConfig

Recompute = Literal["none", "selective", "full"]

WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 12
"""Bytes of a parameter in mixed-precision Adam: 16-bit weight and gradient; a 32-bit copy and two moments."""


def forward_flops(model: ModelConfig, sequences: int) -> dict[str, float]:
    """FLOPs of forward's matrix products by part: `weights` of the layers, attention's `scores`, and `logits`."""
    layers, width, length = model.n_layer, model.n_embd, model.context_length
    return {
        "weights": 24.0 * sequences * layers * length * width**2,
        "scores": 4.0 * sequences * layers * length**2 * width,
        "logits": 2.0 * sequences * length * width * model.vocabulary,
    }


def step_flops(model: ModelConfig, sequences: int, recompute: Recompute = "none") -> float:
    """FLOPs of a step, recomputation included; without any, they are those that the model needs."""
    parts = forward_flops(model, sequences)
    again = {"none": 0.0, "selective": parts["scores"], "full": parts["weights"] + parts["scores"]}
    return 3 * sum(parts.values()) + again[recompute]


def training_seconds(parameters: float, tokens: float, devices: int, achieved_flops: float) -> float:
    """Seconds of a whole training with full recomputation, at achieved FLOP/s that include it."""
    return 8 * tokens * parameters / (devices * achieved_flops)


def layer_activation_bytes(
    model: ModelConfig,
    micro_batch: int,
    *,
    tensor: int = 1,
    context: int = 1,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
) -> float:
    """Bytes that a rank saves for backward of one layer and one micro-batch."""
    length = model.context_length / context
    unit = length * micro_batch * model.n_embd
    if recompute == "full":
        return 2 * unit
    linear = 34 / tensor if sequence_parallel else 10 + 24 / tensor
    scores = 0.0 if recompute == "selective" else 5 * model.n_head * model.context_length / (model.n_embd * tensor)
    return unit * (linear + scores)


def state_bytes(parameters: float, ranks: int = 1, zero: int = 0) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer state on one of `ranks` ranks that share a batch, under ZeRO stage
    `zero`.
    """
    weights, gradients, optimizer = (ranks if zero >= stage else 1 for stage in (3, 2, 1))
    return (
        WEIGHT_BYTES * parameters / weights,
        GRADIENT_BYTES * parameters / gradients,
        OPTIMIZER_BYTES * parameters / optimizer,
    )
