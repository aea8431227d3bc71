"""Which files of a run are its evidence, and which were only made of it?"""

from hashlib import sha256
from pathlib import Path

from agentload.artifacts import rundir
from agentload.run import standing


def test_a_page_derived_files_and_hidden_ones_are_no_evidence(tmp_path: Path) -> None:
    run = rundir.create_at(tmp_path / "01-A")
    before = set(standing.digests(run))
    (run.path / "events.jsonl").write_bytes(b"{}\n")
    (run.path / "report.html").write_text("a page that was made of it")
    (run.path / ".hidden").write_text("")
    (run.path / "derived").mkdir(exist_ok=True)
    (run.path / "derived" / "account.json").write_text("{}")
    (run.path / "agents" / "report.html").mkdir(parents=True)
    (run.path / "agents" / "report.html" / "messages.jsonl").write_text("")
    found = standing.digests(run)
    assert set(found) - before == {"events.jsonl", "agents/report.html/messages.jsonl"}
    assert found["events.jsonl"] == sha256(b"{}\n").hexdigest()
