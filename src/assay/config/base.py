"""Base classes of the configuration models: frozen, strict about types, and closed to unknown keys."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value that compares by content and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class Setting(Frozen):
    """Values that a user may choose; every number is finite."""

    model_config = ConfigDict(allow_inf_nan=False)
