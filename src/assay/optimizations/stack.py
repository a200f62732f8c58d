"""Questions about a run's whole stack of optimizations: its mesh, its promises, and whether it can run."""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from assay.config.mesh import ONE_DEVICE, Mesh, fill
from assay.config.model import ModelConfig
from assay.config.run import ResolvedRun, Run
from assay.errors import UsageError
from assay.optimizations.discovery import catalogue, optimizations_of
from assay.optimizations.optimization import Conflict, Numerics

if TYPE_CHECKING:
    from torch import Tensor

    from assay.hardware import Machine
    from assay.reference.expected import Expected


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
