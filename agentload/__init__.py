"""agentload: real coding agents as the load on an LLM server, and what the server's own log says of it."""

from typing import Final

__version__: Final = "0.1.0"
