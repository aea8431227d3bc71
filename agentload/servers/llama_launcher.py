"""How does the prebuilt llama.cpp server of the `xllamacpp` wheel run as a process with llama-server's flags?

The wheel holds llama.cpp's own server (HTTP routes, scheduler, log) but no executable. This module is one:
`python -m agentload.servers.llama_launcher -m MODEL --port N ...`, with the spelling of llama-server's flags for those
that agentload varies. It logs to stderr as llama-server does, and runs until it is terminated.
"""

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

try:
    import xllamacpp
except ImportError:
    sys.exit("the embedded server needs the extra `local`: pip install 'agentload[local]'")


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with an argument, as the last line of a log is what the user is shown."""

    def error(self, message: str) -> NoReturn:
        flags = ", ".join("/".join(action.option_strings) for action in self._actions)
        self.exit(2, f"{self.prog}: {message}; it takes {flags}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="llama_launcher", description=__doc__, allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--alias", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("-b", "--batch-size", type=int, default=2048)
    parser.add_argument("-ub", "--ubatch-size", type=int, default=512)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-tb", "--threads-batch", type=int)
    parser.add_argument("-lv", "--log-verbosity", type=int, default=3)
    parser.add_argument("--chat-template-file", type=Path)
    parser.add_argument("--no-cache-prompt", action="store_true")
    return parser


def main() -> None:
    """Start the server and wait for a signal."""
    given = _parser().parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.model_alias = {given.alias or Path(given.model).stem}
    params.hostnames = [given.host]
    params.port = given.port
    params.n_ctx = given.ctx_size
    params.n_batch = given.batch_size
    params.n_ubatch = given.ubatch_size
    params.n_parallel = given.parallel
    params.cpuparams.n_threads = given.threads
    params.cpuparams_batch.n_threads = given.threads_batch or given.threads
    params.verbosity = given.log_verbosity
    params.cache_prompt = not given.no_cache_prompt
    params.use_jinja = True
    params.endpoint_metrics = True
    params.endpoint_slots = True
    if given.chat_template_file:
        try:
            params.chat_template = given.chat_template_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            sys.exit(f"llama_launcher: --chat-template-file: {given.chat_template_file}: {error}")
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:  # a traceback would push what the server itself said out of sight
        sys.exit(f"llama_launcher: {' '.join(str(error).split())}")
    signal.pause()
    del server


if __name__ == "__main__":
    main()
