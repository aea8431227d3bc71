"""Do the options of `agentload run` make the simulated server that was asked for, and is a mistake told at once?"""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agentload.agents import workspace
from agentload.cli import app
from agentload.errors import UsageError
from tests.run.runs import environment, only_run

FEW = ("--corpus", "tiny", "--agents", "1", "--tool-calls", "3", "--quiet")


def here(cache_dir: Path, *arguments: str, url: str | None = None) -> Result:
    return CliRunner().invoke(app, ["run", *arguments], env={**environment(cache_dir), "OPENAI_BASE_URL": url})


def test_a_simulated_run_needs_one_option_and_says_first_what_it_is(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    options = ("--server", "twin", "--set", "mixed_prefill_quantum=2048", "--set", "batch_log=true", "--boot", "2")
    result = here(cache_dir, *options, *FEW, "--out", str(tmp_path))
    run = only_run(tmp_path)
    assert (result.exit_code, result.exception) == (0, None)
    assert result.stdout.splitlines()[0] == f"SIMULATED {run.name}  success"
    assert result.stdout.splitlines()[-1] == str(run.path)
    server = tomllib.loads(run.scenario_path.read_text(encoding="utf-8"))["server"]
    assert (server["kind"], server["profile"], server["model"], server["boot"]) == (
        *("twin", "m3-ultra", "scripted-field-report"),
        2,
    )
    assert server["set"] == {"mixed_prefill_quantum": 2048, "batch_log": True}
    # What the real server's command line would be; that one option has no flag.
    assert run.read_manifest().server["argv"] == ["ds4-server", "--mixed-prefill-quantum", "2048"]
    assert b"ds4-server: decode batch count=1 " in run.server_log.read_bytes()


def test_a_scenario_file_names_the_twin_and_an_option_wins_over_it(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "twin.toml"
    path.write_text(
        'schema = "agentload.scenario/1"\n[server]\nkind = "twin"\nprofile = "m3-ultra-agents"\nset.ctx = 50000\n',
        encoding="utf-8",
    )
    result = here(cache_dir, str(path), "--set", "ctx=60000", *FEW, "--out", str(tmp_path / "runs"))
    assert result.exception is None
    log = only_run(tmp_path / "runs").server_log.read_bytes()
    assert b"(ctx=60000, " in log
    assert result.stdout.splitlines()[1].startswith("server twin simulated:m3-ultra-agents ")


def test_a_base_url_of_the_environment_is_not_used_and_that_is_said(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    options = [one for one in FEW if one != "--quiet"]
    result = here(cache_dir, "--server", "twin", *options, "--out", str(tmp_path), url="http://127.0.0.1:1/v1")
    said = "server: --server twin: everything is SIMULATED, no server runs; OPENAI_BASE_URL is set, and not used"
    assert result.stderr.splitlines()[0] == said
    assert result.exception is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--server", "twin", "--set", "ctx"), "--set: expected NAME=VALUE, got 'ctx'"),
        (("--server", "twin", "--set", "ctx=1", "--set", "ctx=2"), "--set: ctx is given twice"),
        (("--server", "twin", "--set", "quantum=128"), "has no option 'quantum': expected prefill_quantum"),
        (("--server", "twin", "--set", "ctx=0"), "--set: Input should be greater than 0, got '0'"),
        (("--server", "twin", "--base-url", "http://127.0.0.1:1/v1"), "server.base_url: the twin is simulated"),
        (("--server", "robot"), "--server: expected 'embedded', 'endpoint', 'launch' or 'twin', got 'robot'"),
        (("--set", "ctx=5"), "give --server twin"),
        (("--server", "twin", "--server-args", "-c 5"), "--server-args are for the embedded server"),
    ],
)
def test_a_mistake_is_told_before_anything_is_made(
    options: tuple[str, ...], message: str, cache_dir: Path, tmp_path: Path
) -> None:
    result = here(cache_dir, *options, "--out", str(tmp_path / "runs"))
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert not (tmp_path / "runs").exists()
