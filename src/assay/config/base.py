"""What every configuration model shares: frozen, strict about types, and deaf to unknown keys."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: it never changes, compares by content, and refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class Setting(Frozen):
    """What a person may choose; every number of it is finite."""

    model_config = ConfigDict(allow_inf_nan=False)
