"""Trackers by name: TensorBoard, MLflow, Weights & Biases, Trackio. Each writes to a folder and sends nothing away."""

from pathlib import Path

from assay.tracking.base import Tracker
from assay.tracking.mlflow import MLflow
from assay.tracking.tensorboard import TensorBoard
from assay.tracking.trackio import Trackio
from assay.tracking.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (TensorBoard, MLflow, WandB, Trackio)}
"""Every tracker by its name."""


def tracker(name: str, folder: Path) -> Tracker:
    """Return a tracker that writes to a folder."""
    return TRACKERS[name](folder)
