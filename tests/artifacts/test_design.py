"""Is a design.json that was edited told from the one that was written before the first start?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentload.artifacts import journal
from agentload.artifacts.design import ExperimentDir
from agentload.artifacts.journal import Journal
from agentload.artifacts.rundir import digest
from agentload.errors import ArtifactError
from tests.run.nights import six


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> ExperimentDir:
    folder = ExperimentDir(path)
    folder.write_design(six())
    fields = json.loads(folder.design_path.read_bytes())
    change(fields)
    folder.design_path.write_text(json.dumps(fields))
    return folder


def test_a_design_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert edited(tmp_path, lambda _: None).read_design() == six()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda fields: fields["steps"][0].update(run="../../elsewhere"), "steps.0.run"),
        (lambda fields: fields["steps"][0].update(segment="a/b"), "steps.0.segment"),
        (lambda fields: fields["variants"][0].update(name=".."), "variants.0.name"),
        (lambda fields: fields["variants"].pop(), "variants"),
        (lambda fields: fields.update(steps=[]), "steps"),
        (lambda fields: fields["steps"].reverse(), "expected the steps in their order"),
        (lambda fields: fields["steps"][0].update(variant="Z"), "expected steps of variants A, B, each once"),
        (lambda fields: fields["variants"][1].update(name="A"), "expected steps of variants A, A, each once"),
    ],
)
def test_a_design_that_cannot_be_is_one_line_with_the_file(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    folder = edited(tmp_path, change)
    with pytest.raises(ArtifactError) as raised:
        folder.read_design()
    assert str(raised.value).startswith(f"{folder.design_path}: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_design_that_was_changed_after_the_first_start_is_refused(tmp_path: Path) -> None:
    folder = edited(tmp_path, lambda _: None)
    before = folder.design_path.read_bytes()
    with Journal(folder.journal_path, journal.read(folder.journal_path)) as book:
        book.append("experiment_started", 5, pid=1, version="0.1.0", design=digest(folder.design_path))
    told = journal.read(folder.journal_path)
    journal.check_design(folder, told)  # as it was
    folder.design_path.write_bytes(before.replace(b'"metric": "prefill_tok_s"', b'"metric": "overlap"'))
    assert folder.read_design().metric == "overlap"
    with pytest.raises(ArtifactError, match="it was changed after the first start"):
        journal.check_design(folder, told)
