"""Three steps of a Llama of 7 billion parameters under FSDP2, as torchrun would start them.

    torchrun --nproc-per-node 8 benchmarks/llama_over_ranks.py

Weights are float32, products and gathered weights bfloat16, gradients are summed in float32. Every layer is recomputed
in backward. A rank has one sequence of 4096 tokens. It needs transformers.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH, STEPS = 4096, 3


def main() -> None:
    """Build the model on the meta device, shard it layer by layer, and train."""
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    shape = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=LENGTH,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(shape)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (*model.model.layers, model):
        fully_shard(layer, mp_policy=policy)
    model.to_empty(device=device)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for _ in range(STEPS):
        ids = torch.zeros(1, LENGTH, dtype=torch.long, device=device)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
