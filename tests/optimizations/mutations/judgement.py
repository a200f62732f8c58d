"""Mutants beside their honest twins: what each changes in a run, and whether the proof says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optimizations.mutations.harness import UNCHECKED, Account, account
from optimizations.mutations.mutant import Mutant
from optimizations.mutations.named import run_of
from optimizations.mutations.on_two import accounts

Named = tuple[str, Mutant]
"""A mutant, and the technique that it is one of."""


@dataclass(frozen=True)
class Judgement:
    """One mutant's run, and the same run without it."""

    technique: str
    mutant: Mutant
    control: Account
    broken: Account

    @property
    def changes(self) -> bool:
        """Whether anything that can be seen of the run is another."""
        return self.control.seen != self.broken.seen

    @property
    def parts(self) -> list[str]:
        """The parts of the proof that caught it, in their order; none: it passed."""
        found = dict.fromkeys(one.partition(":")[0].partition(",")[0] for one in self.broken.failures)
        return [part for part in found if part != UNCHECKED]


def judged(chosen: Sequence[Named], place: Path) -> list[Judgement]:
    """Each of `chosen` in its small run; those over ranks together, in processes that `place` is for."""
    keys = {_key(*one): one for one in chosen}
    over = {one for one in chosen if run_of(*one).ranks > 1}
    accounts = _accounts([*((one, False) for one in keys.values()), *((one, True) for one in chosen)], over, place)
    controls, broken = dict(zip(keys, accounts, strict=False)), accounts[len(keys) :]
    return [Judgement(*one, controls[_key(*one)], found) for one, found in zip(chosen, broken, strict=True)]


def _key(technique: str, mutant: Mutant) -> tuple[str, bool]:
    """Mutants with one run share a control."""
    return run_of(technique, mutant).model_dump_json(), mutant.late


def _accounts(chosen: Sequence[tuple[Named, bool]], over: set[Named], place: Path) -> list[Account]:
    """What came of each run, with its mutant or without."""
    asked = [(one[0], one[1].name, broken, one[1].late) for one, broken in chosen if one in over]
    there = iter(accounts(asked, place) if asked else [])
    return [next(there) if one in over else _here(*one, broken=broken) for one, broken in chosen]


def _here(technique: str, mutant: Mutant, *, broken: bool) -> Account:
    run = run_of(technique, mutant)
    return account(run, mutant.break_it if broken else lambda patch: None, late=mutant.late)
