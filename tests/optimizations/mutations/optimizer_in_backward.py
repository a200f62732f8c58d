"""Updates inside backward, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten

_CLASS = "assay.optimizations.optimizer_in_backward.step:OptimizerPerParameter"
_UPDATE, _STEP = f"{_CLASS}.update", "self._optimizers[parameter].step()"
_PLACE = "[*map(id, self._optimizers)].index(id(parameter))"

MUTANTS = (
    Mutant(
        "every second weight",
        "Every second weight has no hook, and is never updated.",
        rewritten(f"{_CLASS}.__init__", ("for parameter in optimizers:", "for parameter in list(optimizers)[::2]:")),
    ),
    Mutant(
        "gradients stay",
        "A used gradient is not freed, and the next step's is added to it.",
        rewritten(_UPDATE, ("parameter.grad = None", "pass")),
    ),
    Mutant(
        "freed late",
        "A used gradient is set to zero, and not freed.",
        rewritten(_UPDATE, ("parameter.grad = None", "parameter.grad.zero_()")),
    ),
    Mutant(
        "rate never set",
        "The schedule's learning rate is written into copies, so the largest holds always.",
        rewritten(f"{_CLASS}.param_groups", ("return [group for", "return [dict(group) for")),
    ),
    Mutant(
        "matrices twice",
        "Matrices are updated twice in each step.",
        rewritten(_UPDATE, (_STEP, f"[{_STEP} for _ in range(min(2, parameter.ndim))]")),
    ),
    Mutant(
        "norm of matrices",
        "The reported norm leaves biases and gains out.",
        rewritten(
            f"{_CLASS}.norm", ("if parameter in self.norms]", "if parameter in self.norms and parameter.ndim > 1]")
        ),
    ),
    Mutant(
        "one by one",
        "Every gradient is divided by its own norm.",
        rewritten(_UPDATE, (_STEP, f"gradient.div_(self.norms[parameter] + 1e-6)\n    {_STEP}")),
    ),
    Mutant(
        "smaller decay",
        "Weight decay shrinks matrices by half of what it should.",
        rewritten(
            "assay.optimizations.optimizer_in_backward.step:update_in_backward",
            ("recipe([(name, one)])", "halved(recipe([(name, one)]))"),
            halved=lambda one: (
                one.param_groups[0].update(weight_decay=0.5 * one.param_groups[0]["weight_decay"]),
                one,
            )[1],
        ),
    ),
    Mutant(
        "forgets when saved",
        "Writing a checkpoint drops all moments.",
        rewritten(
            f"{_CLASS}.state_dict",
            (
                '    return {\n        "state"',
                '    [one.state.clear() for one in self._optimizers.values()]\n    return {\n        "state"',
            ),
        ),
        late=True,
    ),
    Mutant(
        "waits late",
        "Late in the run every second weight is no longer updated.",
        rewritten(_UPDATE, (_STEP, f"{_PLACE} % 2 and {_STEP}"), late=True),
        late=True,
    ),
)
