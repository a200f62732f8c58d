"""The page of a study of the library that is predicted on a GPU: nothing is trained, read from a disk or fetched.

An address names a study of the library and a device, and no file. All of these studies have texts whose vocabulary is
known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from assay.api.configuration import on_device
from assay.api.designs import design_study
from assay.config.home import Home
from assay.config.run import ResolvedRun
from assay.dashboard.whatif.question import ABSENT
from assay.errors import UsageError, among, short_text
from assay.hardware.devices import DEVICES
from assay.studies.library import names
from assay.studies.predicted import PredictedStudy, predicted_study

_DEVICE = "a100-40gb"


class AskedPrediction(NamedTuple):
    """A study of the library and a device."""

    study: str
    device: str


def read(query: Mapping[str, str]) -> AskedPrediction:
    """Return what an address asks for, empty without a study. Raises `UsageError` for an unknown name."""
    study, device = query.get("study", ""), query.get("device") or _DEVICE
    if study and study not in names():
        raise UsageError(f"the library has no study {short_text(study)}{among(study, names())}")
    if device not in ABSENT:
        raise UsageError(f"there is no device {short_text(device)}{among(device, ABSENT)}")
    return AskedPrediction(study, device)


def controls(asked: AskedPrediction) -> dict[str, Any]:
    """Return the menus of the form with what is chosen."""
    devices = [(name, DEVICES[name].name) for name in ABSENT]
    return {"library": names(), "devices": devices, "asked": asked}


def predict_study(asked: AskedPrediction, home: Home) -> PredictedStudy:
    """Return the answer. Raises `UsageError` if the study cannot be predicted there."""
    study, run = design_study(asked.study, (), None, home)
    base, machine = on_device(run, asked.device)
    return predicted_study(study.on(base), base, asked.device, machine, ResolvedRun.with_vocabulary)
