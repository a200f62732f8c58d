"""A vision transformer under Lightning, on random images: pip install lightning transformers."""

import argparse

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification


class Classifier(lightning.LightningModule):
    """The model, its loss and its optimizer."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.model = ViTForImageClassification(config)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch of images and labels."""
        images, labels = batch
        loss = self.model(images, labels=labels).loss
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    config = ViTConfig(
        hidden_size=given.width,
        intermediate_size=4 * given.width,
        num_hidden_layers=given.layers,
        num_attention_heads=given.width // 64,
        num_labels=1000,
    )
    images = torch.randn(4, 3, 224, 224).repeat(given.batch_size, 1, 1, 1)
    data = TensorDataset(images, torch.randint(1000, (len(images),)))
    trainer = lightning.Trainer(
        max_steps=given.steps, precision="bf16-mixed", logger=False, enable_checkpointing=False, devices=1
    )
    trainer.fit(Classifier(config), DataLoader(data, batch_size=given.batch_size))


if __name__ == "__main__":
    main()
