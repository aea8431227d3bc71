"""What do the steps of a planned experiment on the simulated server leave, each run by itself?"""

from pathlib import Path

from agentload.artifacts.design import ExperimentDir
from agentload.run import runner, scenario
from tests.run.runs import environment


async def carry_out(folder: ExperimentDir, cache_dir: Path) -> None:
    """Run each step of the experiment's plan, with a boot of its own."""
    plan = folder.read_design()
    for step in plan.steps:
        fields = dict(plan.variant(step.variant).scenario)
        fields["server"] = {**fields["server"], "boot": step.position}
        fields["condition"] = step.variant
        chosen = scenario.from_fields(fields, "")
        path = folder.run_path(step)
        await runner.run(chosen, folder.runs, environment(cache_dir), lambda _: None, directory=path)
