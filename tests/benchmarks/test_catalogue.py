"""What is compared with what when the catalogue is measured; the measuring itself is `assay compare`."""

import pytest

from assay.analysis.catalogue import Catalogue
from assay.errors import UsageError
from assay.hardware import Machine
from assay.optimizations import Unavailable, Unpredicted, catalogue
from assay.records.status import Status

SMALL = Machine(processor="any", cores=2, memory_bytes=2**33)


@pytest.mark.parametrize("name", list(catalogue()))
def test_every_optimization_has_a_setting_in_which_it_does_something(name: str) -> None:
    from catalogue import plan  # type: ignore[import-not-found]

    try:
        planned = plan("demo", name)
    except Unavailable:
        pytest.skip("not on this machine, whatever the setting")
    assert name in planned.treatment


def test_a_technique_with_another_baseline_or_no_prediction_stands_alone() -> None:
    from catalogue import Plan, groups

    plans = [Plan(name, (), predictable=name != "b") for name in "abcde"] + [Plan("f", ("seed=1",))]
    assert [[one.name for one in group] for group in groups(plans, 3)] == [["a", "c", "d"], ["e"], ["b"], ["f"]]


@pytest.mark.parametrize("reason", [Unavailable("no such unit"), Unpredicted("that")])
def test_a_refused_technique_is_written_down(reason: UsageError) -> None:
    from catalogue import refused

    entry = refused("fp8", "demo", reason, SMALL)
    assert (entry.status, entry.proven, entry.device) == (Status.UNAVAILABLE, None, "any, 2 cores")
    assert entry.reason is not None
    assert str(reason) in entry.reason
    assert Catalogue().renewed([entry]).of("fp8") == (entry,)


def test_an_entry_stands_if_it_is_of_this_machine_and_of_enough_processes() -> None:
    from catalogue import refused, stands

    entry = refused("fp8", "demo", Unavailable("no such unit"), SMALL)
    assert not stands(entry, SMALL)
    assert stands(entry.model_copy(update={"processes": 3}), SMALL)
    assert not stands(entry.model_copy(update={"processes": 1}), SMALL)
    assert not stands(entry.model_copy(update={"processes": 3, "device": "another"}), SMALL)
    assert not stands(entry.model_copy(update={"processes": 3, "torch": "1.0"}), SMALL)
