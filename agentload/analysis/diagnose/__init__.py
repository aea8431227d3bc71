"""Why did a run go as it did? `diagnose(path)`: who stalled whom, what was prefilled again and why, what to try."""

from agentload.analysis.diagnose.whole import diagnose

__all__ = ["diagnose"]
