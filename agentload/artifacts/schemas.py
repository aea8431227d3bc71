"""Which schema does each file of a run directory follow, and what changed since the last?"""

from typing import Final

# /1: first.
RUN: Final = "agentload.run/1"
# /1: first.
EVENTS: Final = "agentload.events/1"
# /1: first.
MESSAGES: Final = "agentload.messages/1"
# /1: first.
MARKERS: Final = "agentload.markers/1"
# /1: first. Spans that a server sent while a run lasted.
SPANS: Final = "agentload.spans/1"
# /1: first.
ACCOUNT: Final = "agentload.account/1"
# /1: first. A log's account, without a run.
LOG_ACCOUNT: Final = "agentload.log-account/1"
# /1: first.
REQUESTS: Final = "agentload.requests/1"
# /1: first.
PHASES: Final = "agentload.phases/1"
# /1: first.
SEGMENTS: Final = "agentload.segments/1"
# /1: first.
# /2: memory of the host and the devices; a server on this host whose process is not known has samples too, so that
#     cpu_s, rss_bytes and processes may be null.
SAMPLES: Final = "agentload.samples/2"
# /1: first.
DESIGN: Final = "agentload.design/1"
# /1: first.
JOURNAL: Final = "agentload.journal/1"
# /1: first. comparison.json and comparison.parquet of an experiment.
COMPARISON: Final = "agentload.comparison/1"
# /1: first. What `agentload diagnose --json` prints.
DIAGNOSIS: Final = "agentload.diagnosis/1"
