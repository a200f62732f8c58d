"""Configuration of a run: frozen models, the files that they are read from, and the folder that assay works in.

Names are imported on first use, so that `Home` is available without loading the models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.config.home import Home as Home
    from assay.config.loading import load as load
    from assay.config.loading import presets as presets
    from assay.config.loading import validate as validate
    from assay.config.model import ModelConfig as ModelConfig
    from assay.config.run import DataConfig as DataConfig
    from assay.config.run import ResolvedRun as ResolvedRun
    from assay.config.run import Run as Run
    from assay.config.run import Spec as Spec
    from assay.config.run import TrainingConfig as TrainingConfig
    from assay.config.run import identity as identity

_MODULES = {
    "DataConfig": "run",
    "Home": "home",
    "ModelConfig": "model",
    "ResolvedRun": "run",
    "Run": "run",
    "Spec": "run",
    "TrainingConfig": "run",
    "identity": "run",
    "load": "loading",
    "presets": "loading",
    "validate": "loading",
}

__all__ = [
    "DataConfig",
    "Home",
    "ModelConfig",
    "ResolvedRun",
    "Run",
    "Spec",
    "TrainingConfig",
    "identity",
    "load",
    "presets",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
