"""The base of all records."""

from pydantic import ConfigDict

from assay.config.base import Frozen


class Record(Frozen):
    """Base of records read from JSON, where tuples are lists and enumerations are text."""

    model_config = ConfigDict(strict=False)
