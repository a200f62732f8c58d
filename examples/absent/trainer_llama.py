"""A Llama under transformers' Trainer, on random tokens: pip install transformers accelerate."""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=given.width,
        intermediate_size=4 * given.width,
        num_hidden_layers=given.layers,
        num_attention_heads=given.width // 64,
        max_position_embeddings=given.length,
    )
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(32000, (64, given.length))]
    settings = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=given.batch_size,
        max_steps=given.steps,
        bf16=True,
        gradient_checkpointing=True,
        save_strategy="no",
        report_to=[],
    )
    Trainer(model=LlamaForCausalLM(config), args=settings, train_dataset=rows * given.batch_size).train()


if __name__ == "__main__":
    main()
