"""The short text that a run records at its end."""

import shutil

from assay.store.run_folder import RunFolder
from assay.training.sample import LONGEST
from assay.worker.ending.sample import MOST_PARAMETERS, add_sample
from assay.worker.result import Findings
from support.trained import Trained


def sampled(folder: RunFolder, **fields: object) -> Findings:
    """Findings of a run, with a text if it has one."""
    findings = Findings(folder.spec(), phases=None, **fields)
    add_sample(findings, folder)
    return findings


def test_it_is_written_by_the_newest_checkpoint(trained: Trained) -> None:
    found = sampled(trained(3)).sample
    assert found is not None
    assert len(found.text) == LONGEST
    assert sampled(trained(3)).sample == found
    assert sampled(trained(3, 4)).sample != found


def test_a_larger_model_writes_none(trained: Trained) -> None:
    findings = sampled(trained(3), parameters=MOST_PARAMETERS + 1)
    assert (findings.sample, findings.notes) == (None, [])


def test_a_text_that_cannot_be_had_is_a_note(trained: Trained) -> None:
    folder = trained(3)
    shutil.rmtree(folder.checkpoints)
    findings = sampled(folder)
    assert findings.sample is None
    assert findings.notes[0].startswith("no text was sampled: ")
