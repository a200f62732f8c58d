"""Trackers by name: TensorBoard, MLflow, Weights & Biases, Trackio. Each writes to a folder and sends nothing away."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from assay.errors import UsageError, among, short_text
from assay.tracking.base import Tracker
from assay.tracking.mlflow import MLflow
from assay.tracking.tensorboard import TensorBoard
from assay.tracking.trackio import Trackio
from assay.tracking.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (TensorBoard, MLflow, WandB, Trackio)}
"""Every tracker by its name."""


def check_names(names: Sequence[str]) -> list[str]:
    """Return the names, each once. Raises `UsageError` for another name, and if a library is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"there is no tracker {short_text(name)}{among(name, TRACKERS)}")
        if not _installed(name):
            raise UsageError(f"the tracker {name} needs the package {name}; install with `pip install 'assay[{name}]'`")
    return list(dict.fromkeys(names))


def _installed(library: str) -> bool:
    """True if a library can be imported; a folder of its name in the working directory is none."""
    found = find_spec(library)
    return found is not None and found.origin is not None


def tracker(name: str, folder: Path) -> Tracker:
    """Return a tracker that writes to a folder."""
    return TRACKERS[name](folder)
