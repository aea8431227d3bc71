"""How long do equal requests take, which no line and no count tells apart: to read, and to join with their answers?

    python -m tests.bench.bench_equal [REQUESTS ...]

Prints CPU seconds for ds4 logs of so many requests of one prompt: six at a time, one more each second (20 s each, so
that one group holds all), and all in one second. With twice as many, about twice the time: nothing is quadratic.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from agentload.core.attribution import attribute
from agentload.core.records import Completion, LogFacts, Timeline, Usage
from agentload.serverlogs.ds4 import Reader

TEXTS = (
    (0, "chat ctx=0..90:90 prompt start"),
    (1, "chat ctx=0..90:90 prefill chunk 40/90 (44.4%) chunk=1.00 t/s avg=1.00 t/s 1.000s"),
    (5, "chat ctx=0..90:90 prompt done 5.000s"),
    (15, "chat ctx=90..97:7 gen=7 decoding chunk=0.70 t/s avg=0.70 t/s 10.000s"),
    (20, "chat ctx=0..90:90 gen=7 finish=stop 20.000s"),
)
BEGINS: dict[str, Callable[[int], int]] = {
    "six at a time": lambda at: at // 6 * 30,
    "one a second": lambda at: at,
    "all in one second": lambda _: 0,
}


def log(begins: list[int]) -> bytes:
    """A log of requests that begin at these seconds."""
    lines = sorted((begin + after, at, text) for at, begin in enumerate(begins) for after, text in TEXTS)
    return b"".join(
        f"09{14 + s // 86_400:02d} {s // 3_600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d} ds4-server: {text}\n".encode()
        for s, _, text in lines
    )


def answers(facts: LogFacts) -> Iterator[Completion]:
    """An answer of each request of the log, at its times."""
    for at, one in enumerate(facts.requests):
        begin, end = one.prefill_start or 0, one.t_end or 0
        usage = Usage(one.prompt_tokens, one.decoded_tokens, one.cached_tokens)
        yield Completion(f"a0-t{at}-r1", "a0", at, begin, begin, begin, end, 200, usage=usage, finish="stop")


def main(counts: list[int]) -> None:
    """Print the table."""
    sys.stdout.write(f"{'requests':>8}  {'':<18} {'reading':>8} {'joining':>8}\n")
    for name, begin_of in BEGINS.items():
        for count in counts:
            data = log([begin_of(at) for at in range(count)])
            began = time.process_time()
            reader = Reader(year=2026)
            reader.feed(data)
            facts = reader.close()
            read = time.process_time()
            unix = replace(facts, timeline=Timeline.UNIX, clock_error_ns=1_000)
            sent = list(answers(unix))
            joining = time.process_time()
            found = attribute("r1", sent, unix, ())
            done = time.process_time()
            if len(found.requests) != count:
                raise ValueError(f"expected {count} rows, got {len(found.requests)}")
            sys.stdout.write(f"{count:8,}  {name:<18} {read - began:6.2f} s {done - joining:6.2f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1_000, 4_000, 16_000])
