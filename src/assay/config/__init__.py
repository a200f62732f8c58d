"""What a run is: frozen models, the file that they are read from, and the folder that assay works in."""

from assay.config.data import DataConfig
from assay.config.home import Home
from assay.config.load import load, presets, validate
from assay.config.model import ModelConfig
from assay.config.run import Run, Spec, identity
from assay.config.training import TrainingConfig

__all__ = [
    "DataConfig",
    "Home",
    "ModelConfig",
    "Run",
    "Spec",
    "TrainingConfig",
    "identity",
    "load",
    "presets",
    "validate",
]
