"""An optimization's card as plain data: its class constants, its fields and its module docstring."""

import inspect
import sys

from assay.config import ResolvedRun
from assay.config.base import Frozen, attribute_docs
from assay.config.run import Scalar, Spec
from assay.hardware import Machine
from assay.optimizations.optimization import Conflict, Optimization, Unavailable


class Field(Frozen):
    """A parameter of an optimization."""

    name: str
    default: Scalar
    description: str


class Card(Frozen):
    """The catalogue's entry of an optimization: its effect, price, sources and parameters."""

    optimization: str
    title: str
    stage: str
    numerics: str
    saves: str
    pays: str
    sources: tuple[str, ...]
    claims: tuple[str, ...]
    fields: tuple[Field, ...]
    about: str

    @property
    def usage(self) -> str:
        """The optimization as written after ``--with``, every field at its default."""
        return str(Spec(name=self.optimization, fields={field.name: field.default for field in self.fields}))


def card(kind: type[Optimization]) -> Card:
    """Return the card of an optimization."""
    texts = attribute_docs(kind)
    return Card(
        optimization=kind.name(),
        title=kind.title,
        stage=kind.stage.name,
        numerics=kind.numerics.value,
        saves=kind.saves,
        pays=kind.pays,
        sources=kind.sources,
        claims=tuple(sorted(kind.claims)),
        fields=tuple(
            Field(name=name, default=about.default, description=texts.get(name, ""))
            for name, about in kind.model_fields.items()
        ),
        about=inspect.cleandoc(sys.modules[kind.__module__].__doc__ or ""),
    )


def availability(kind: type[Optimization], machine: Machine) -> str:
    """Return `available`, with the default run's conflict if there is one, or why this machine cannot run it."""
    try:
        kind().check(ResolvedRun(), machine)
    except Unavailable as reason:
        return f"unavailable: {reason}"
    except Conflict as reason:
        return f"available, but not for every run: {reason}"
    return "available"
