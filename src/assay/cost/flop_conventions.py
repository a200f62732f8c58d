"""FLOPs that training a token takes by definition of the model, in the conventions of three papers.

None of them counts recomputation or anything else that a program does besides, so they serve for model FLOPs
utilization and for scaling laws. A multiply-add counts as two, and backward as two forwards. They differ in what they
leave out, so a figure means little without its convention:

- Kaplan et al. 2020 (arXiv:2001.08361): 6·N for each token, without attention. N leaves out embeddings, and the output
  weights, which are the embedding's.
- Chowdhery et al. 2022 (PaLM, arXiv:2204.02311, appendix B): 6·N + 12·L·H·Q·T with all parameters N, layers L, heads H
  of the size Q, and the context T. The causal half is not taken off.
- Hoffmann et al. 2022 (Chinchilla, arXiv:2203.15556, appendix F): every product, with the embedding as a product with
  one-hot rows, and three FLOPs for each element of the softmax.
"""

from assay.config import ModelConfig
from assay.cost.gpt_tape import active_parameter_count


def kaplan(config: ModelConfig) -> int:
    """Return 6·N: training FLOPs of a token, of the weights between embedding and output."""
    return 6 * inner_parameters(config)


def palm(config: ModelConfig) -> int:
    """Return 6·N + 12·L·H·Q·T: training FLOPs of a token, of all weights and of attention."""
    attention = 12 * config.n_layer * config.n_head * config.head_dim * config.context_length
    return 6 * active_parameter_count(config) + attention


def chinchilla(config: ModelConfig) -> int:
    """Return training FLOPs of a token by every product, embedding and softmax included."""
    width, length, heads = config.n_embd, config.context_length, config.n_head
    inner = heads * config.head_dim
    keys = config.kv_heads * config.head_dim
    embedding = 2 * config.vocabulary * width
    attention = 2 * width * (inner + 2 * keys) + 4 * length * inner + 3 * heads * length + 2 * inner * width
    gates = 3 if config.activation == "swiglu" else 2
    experts = 1 if config.n_expert is None else config.n_expert_active
    mlp = 2 * gates * experts * width * config.hidden
    output = 2 * width * config.vocabulary
    return 3 * (embedding + config.n_layer * (attention + mlp) + output)


CONVENTIONS = {"Kaplan": kaplan, "PaLM": palm, "Chinchilla": chinchilla}
"""Function of each convention, by the name of its paper."""


def inner_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of one token's path, without embeddings and output weights."""
    ends = config.vocabulary * config.n_embd * (1 if config.tie_embeddings else 2)
    positions = config.context_length * config.n_embd if config.position == "learned" else 0
    return active_parameter_count(config) - ends - positions
