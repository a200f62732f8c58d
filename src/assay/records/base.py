"""The base of all records."""

from pydantic import ConfigDict

from assay.config.base import Frozen


class Record(Frozen):
    """Base of records read from JSON, where tuples are lists, enumerations are text, and so are figures such as ∞."""

    model_config = ConfigDict(strict=False, ser_json_inf_nan="strings")
