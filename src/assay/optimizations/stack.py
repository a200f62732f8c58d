"""A run's stack of optimizations: found by their names, and asked together for its mesh, promises and company.

The folder is the registry: every module here that is not part of the frame defines one `Optimization`. To add one, drop
a file into the folder, into a user's own (`assay.config.extensions`), or into one passed to `search`. A large technique
is a package of its own, whose `__init__` defines the `Optimization`.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from assay.config.extensions import VARIABLE, check_methods, classes, extension_folder, import_file, modules
from assay.config.mesh import ONE_DEVICE, Mesh, fill
from assay.config.model import ModelConfig
from assay.config.run import ResolvedRun, Run, Spec
from assay.errors import UsageError, suggestion
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from assay.hardware import Machine
    from assay.reference.expected import Expected


_FRAME = {"__init__", "card", "optimization", "stack"}


@cache
def _own_names() -> frozenset[str]:
    return frozenset(_names(Path(__file__).parent))


@cache
def _own(name: str) -> type[Optimization]:
    """Import one optimization of assay's own. A run imports those that it uses, and no other."""
    return _only_optimization(importlib.import_module(f"{__package__}.{name}"))


@cache
def _extensions(folder: Path | None) -> dict[str, type[Optimization]]:
    """Optimizations of a user's own folder. Raises `UsageError` for a faulty file, and for a name that is taken."""
    found: dict[str, type[Optimization]] = {}
    for module in [] if folder is None else modules(folder, "optimizations"):
        kind = _only_optimization(module)
        if kind.name() in _own_names() or kind.name() in found:
            raise UsageError(f"{module.__file__} defines {kind.name()!r}, which exists; choose another name")
        found[kind.name()] = kind
    return found


def is_own(kind: type[Optimization]) -> bool:
    """Return whether an optimization is one of the user's, and none of assay's own."""
    return kind.name() not in _own_names()


_CONSTANTS = {"title": str, "stage": Stage, "numerics": Numerics, "saves": str, "pays": str, "sources": tuple}
"""Class constants that every optimization has, with their types."""

_added: dict[str, type[Optimization]] = {}

_stacks: dict[Any, tuple[Optimization, ...]] = {}
"""Stacks that this process has resolved, by their specs and by the optimizations that may be added."""
_MOST_STACKS = 1024


def catalogue() -> dict[str, type[Optimization]]:
    """Return every optimization by name, in the order of application: by stage, then by name."""
    known = {**{name: _own(name) for name in _own_names()}, **_extensions(extension_folder("optimizations")), **_added}
    return dict(sorted(known.items(), key=lambda item: (item[1].stage, item[0])))


def _named(name: str) -> type[Optimization] | None:
    """Return one optimization of the catalogue without importing the others; None if there is none of that name."""
    if name in _added:
        return _added[name]
    return _own(name) if name in _own_names() else _extensions(extension_folder("optimizations")).get(name)


def search(folder: Path) -> list[str]:
    """Add the optimizations in the files of another folder, and return their names.

    Raises `UsageError` for a file that cannot be imported, or that does not define exactly one optimization.
    """
    names = _names(folder)
    for name in names:
        _added[name] = _only_optimization(import_file(_file_of(folder, name), name))
    return names


def forget(names: Iterable[str]) -> None:
    """Remove optimizations that `search` added."""
    for name in names:
        _added.pop(name, None)
        sys.modules.pop(name, None)


def resolve(spec: Spec) -> Optimization:
    """Return the optimization that a spec names, with checked fields. Raises `UsageError` with one sentence."""
    kind = _named(spec.name)
    if kind is None:
        known = catalogue()
        several = any(name in known for name in re.split(r"[\s,]+", spec.name))
        listed = "; assay optimizations lists all (ASSAY_EXTENSIONS names the folder of your own)"
        hint = "; join several with +" if several else suggestion(spec.name, list(known)) or listed
        raise UsageError(f"unknown optimization {spec.name!r}{hint}")
    for field in spec.fields:
        if field not in kind.model_fields:
            has = f"its fields are {', '.join(kind.model_fields)}" if kind.model_fields else "it has no fields"
            raise UsageError(
                f"{spec.name} has no field {field!r}{suggestion(field, list(kind.model_fields)) or '; ' + has}"
            )
    try:
        return kind(**spec.fields)
    except ValidationError as error:
        finding = error.errors()[0]
        message = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
        raise UsageError(
            f"{spec.name}:{finding['loc'][0]}={finding['input']!r} is not possible: it {message}"
        ) from None


def all_known(run: Run) -> bool:
    """True if every optimization of a run can still be resolved: a user's own may have gone since it ran."""
    try:
        optimizations_of(run)
    except UsageError:
        return False
    return True


def optimizations_of(run: Run) -> tuple[Optimization, ...]:
    """Return the run's optimizations in the order of application, independent of the order of listing.

    A stack is resolved once, as it is listed and as it is written out with all its fields.
    """
    key = _key(run.optimizations)
    if key not in _stacks:
        found = tuple(sorted(map(resolve, run.optimizations), key=lambda one: (one.stage, one.name())))
        if len(_stacks) >= _MOST_STACKS:
            _stacks.clear()
        _stacks[key] = _stacks[_key(one.spec() for one in found)] = found
    return _stacks[key]


def _key(specs: Iterable[Spec]) -> Any:
    """Return what determines a stack: 1, 1.0 and True are fields of three kinds."""
    listed = tuple((one.name, *((name, type(value), value) for name, value in one.fields.items())) for one in specs)
    return listed, tuple(_added.items()), os.environ.get(VARIABLE)


def _names(folder: Path) -> list[str]:
    """Names of the modules and packages in a folder."""
    packages = (path.parent.name for path in folder.glob("*/__init__.py"))
    return sorted({path.stem for path in folder.glob("*.py")}.union(packages) - _FRAME)


def _file_of(folder: Path, name: str) -> Path:
    package = folder / name / "__init__.py"
    return package if package.exists() else folder / f"{name}.py"


def _only_optimization(module: ModuleType) -> type[Optimization]:
    found: list[type[Optimization]] = classes(module, Optimization)
    if len(found) != 1:
        raise UsageError(f"{module.__file__} must define exactly one Optimization, and defines {len(found)}")
    for name, kind in _CONSTANTS.items():
        if not isinstance(getattr(found[0], name, None), kind):
            raise UsageError(f"{module.__file__}: {found[0].__name__}.{name} is missing, or is no {kind.__name__}")
    check_methods(module, found[0])
    return found[0]


def resolve_run(run: Run) -> ResolvedRun:
    """Return the run with ordered optimizations, written-out defaults, and all that follows from them.

    Equal runs then have equal hashes. `ranks` becomes the size of the mesh, so a run that no optimization divides is a
    run on one device. Raises `UsageError` for an optimization that does not exist or has no such field, and as
    `mesh_of`.
    """
    stack = optimizations_of(run)
    ranks = mesh_of(run).size
    changes = {
        "optimizations": tuple(one.spec() for one in stack),
        "ranks": ranks,
        "threads": run.threads if run.cores is None else run.threads or max(1, len(run.cores) // ranks),
        "batch_divisor": prod(one.leaves_one_in() for one in stack),
    }
    return ResolvedRun.model_construct(run.model_fields_set | {"batch_divisor"}, **{**dict(run), **changes})


def trained_model(run: Run) -> ModelConfig:
    """Return the model that a run trains, which an optimization may have changed."""
    model = run.model
    for one in optimizations_of(run):
        model = one.trained(model)
    return model


def model_weights(run: Run, weights: "Mapping[str, Tensor]") -> "Mapping[str, Tensor]":
    """Return the weights of that model, from those of a checkpoint of the run."""
    for one in optimizations_of(run):
        weights = one.model_weights(weights, run.model)
    return weights


def expected_of(run: ResolvedRun) -> "Expected":
    """Return the values that the run's first steps must compute: the baseline's, as its optimizations change them."""
    from assay.reference.expected import Expected
    from assay.reference.rules import AdamWRule

    training = run.training
    found = Expected(
        model=trained_model(run),
        rule=AdamWRule(
            weight_decay=training.weight_decay,
            beta1=training.beta1,
            beta2=training.beta2,
            epsilon=training.epsilon,
        ),
        batch_divisor=prod(one.leaves_one_in() for one in optimizations_of(run)),
        # Each rank draws masks for its own rows; on one device the reference has the program's micro-batches.
        same_noise=run.ranks == 1,
    )
    for one in optimizations_of(run):
        found = one.expect(found, run)
    return found


def numerics_of(run: Run) -> Numerics:
    """The loosest promise of a run's optimizations about its loss."""
    promised = [one.promised for one in optimizations_of(run)]
    return max(promised, key=list(Numerics).index, default=Numerics.EXACT)


def mesh_of(run: Run) -> Mesh:
    """Return the mesh over which the run's optimizations divide it; without such an optimization, one device.

    Raises `Conflict` where two optimizations want different degrees of an axis, or an axis is left with one rank.
    Raises `UsageError` where the degrees do not multiply to `run.ranks`.
    """
    degrees: dict[str, int | None] = {}
    names: dict[str, str] = {}
    for one in optimizations_of(run):
        for axis, degree in one.axes().items():
            if degree is not None:
                names.setdefault(axis, f"{one.name()}:degree")
            if degrees.setdefault(axis, degree) not in (degree, None) and degree is not None:
                other = next(each for each in optimizations_of(run) if each.axes().get(axis) == degrees[axis])
                raise Conflict(
                    f"{one.name()} needs {axis}={degree} and {other.name()} needs {axis}={degrees[axis]}; "
                    "give both the same degree"
                )
            degrees[axis] = degrees[axis] or degree
    if not degrees:
        return ONE_DEVICE
    mesh = fill(run.ranks, degrees, names)
    for one in optimizations_of(run):
        for axis in one.axes():
            if mesh.degree(axis) == 1:
                raise Conflict(
                    f"{one.name()} divides nothing: {axis}=1 with {_ranks(run.ranks)}; use {2 * run.ranks} ranks"
                )
    return mesh


def check_divided(run: Run) -> None:
    """Raise `UsageError` if a run has several ranks and no optimization divides it among them."""
    if run.ranks > 1 and mesh_of(run).size == 1:
        raise UsageError(f"no technique divides the run among {run.ranks} ranks; add one, such as --with data_parallel")


def check(run: ResolvedRun, machine: "Machine") -> None:
    """Check that every optimization can run on this machine and in this stack. Raises `Unavailable` or `Conflict`."""
    _check_shares(run)
    owners: dict[str, str] = {}
    for one in optimizations_of(run):
        for seam in sorted(one.claims):
            if seam in owners:
                raise Conflict(f"{one.name()} and {owners[seam]} both replace the step's {seam}; choose one of them")
            owners[seam] = one.name()
    _check_company(run, machine)
    for one in optimizations_of(run):
        if run.model.own is not None and not one.any_model:
            raise Conflict(
                f"{one.name()} changes parts of assay's own model, which {run.model.own} does not have; choose among "
                f"{', '.join(name for name, kind in catalogue().items() if kind.any_model)}"
            )
        for seam in sorted(one.needs - owners.keys()):
            offers = " or ".join(name for name, kind in catalogue().items() if seam in kind.claims)
            raise Conflict(f"{one.name()} needs a technique that replaces the step's {seam}; add {offers}")
        one.check(run, machine)


def _check_shares(run: ResolvedRun) -> None:
    """Raise `Conflict` where the remaining batch, a rank's share, or a micro-batch would not be whole."""
    left, ranks = prod(one.leaves_one_in() for one in optimizations_of(run)), mesh_of(run).dp
    rows, batch = run.training.batch_size // left, f"training.batch_size={run.training.batch_size}"
    if run.training.batch_size % left:
        raise Conflict(f"{batch} cannot be reduced to 1/{left}; choose a multiple of {left}")
    batch += f" (reduced to {rows})" if left > 1 else ""
    if rows % ranks:
        raise Conflict(f"{batch} cannot be divided among dp={ranks} ranks; choose a multiple of {left * ranks}")
    for one in optimizations_of(run):
        if rows // ranks % one.cuts():
            share = f", with {rows // ranks} on each of dp={ranks} ranks," if ranks > 1 else ""
            parts = f"{one.name()}:micro_batches={one.cuts()} equal parts"
            raise Conflict(
                f"{batch}{share} cannot be cut into {parts}; choose a multiple of {left * ranks * one.cuts()}"
            )


def _check_company(run: ResolvedRun, machine: "Machine") -> None:
    """Raise `Conflict` where the stack has a technique that another excludes, or lacks one that another requires."""
    stack = optimizations_of(run)
    for one in stack:
        others = [other for other in stack if other is not one]
        for trait, why in one.excludes(run).items():
            for other in others:
                if trait in other.bears():
                    raise Conflict(why.format(other=other.name()))
        for trait, why in one.requires(run, machine).items():
            if not any(trait in other.bears() for other in others):
                raise Conflict(why)


def _ranks(count: int) -> str:
    return "one rank" if count == 1 else f"{count} ranks"
