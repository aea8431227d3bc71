"""`agentload quantum`: which prefill chunk keeps a mixture-of-experts model's experts busy, and who waits for it?"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload import modelfile
from agentload.commands import quantum_measured
from agentload.commands.quantum_measured import Measured
from agentload.core import moe
from agentload.core.evidence_grade import grade
from agentload.errors import UsageError
from agentload.report.page import Page
from agentload.twin import profile, published
from agentload.twin.agenda import SECOND_NS
from agentload.twin.costs import Costs

_ROWS: Final = tuple(1 << power for power in range(6, 14))  # 64 to 8192
_TARGET: Final = 48.0  # tokens an expert: report A's 2048 of 256 experts, 6 used
_MOST: Final = 1_000_000  # experts, and tokens an expert
_PROFILE: Final = "m3-ultra"


@dataclass(frozen=True, slots=True)
class _Asked:
    experts: int
    used: int
    target: float
    model: modelfile.ModelExperts | None


def quantum(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="[MODEL.gguf | config.json | FOLDER]",
            help="Read the counts of experts from a model.",
            readable=False,
            show_default=False,
        ),
    ] = None,
    experts: Annotated[
        int | None, typer.Option(min=1, max=_MOST, help="Routed experts of a layer.", show_default="the model's")
    ] = None,
    used: Annotated[
        int | None, typer.Option(min=1, max=_MOST, help="Experts that a token uses.", show_default="the model's")
    ] = None,
    target: Annotated[float, typer.Option(help="Tokens that shall meet in one expert.")] = _TARGET,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="Of a run or experiment of probes: the gaps that it measured.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Say which prefill chunk keeps a mixture-of-experts model's experts busy, and who waits.

    Arithmetic on counts, no server is needed: what to try with `agentload ab`. Exits with 1 when the model is dense.
    """
    if not 0 < target <= _MOST:
        raise UsageError(f"--target: expected more than 0 and at most {_MOST:,} tokens an expert, got {target:g}")
    found = None if model is None else modelfile.read(model)
    if found is not None and found.dense and experts is None:
        typer.echo(f"agentload: {_dense(found)}", err=True)
        raise typer.Exit(1)
    asked = _asked(found, experts, used, target)
    answer = _answer(asked, [] if from_ is None else quantum_measured.read(from_))
    typer.echo(json.dumps(answer, indent=2) + "\n" if as_json else _text(asked, answer), nl=False)


def _dense(found: modelfile.ModelExperts) -> str:
    says = "it has one expert" if found.total == 1 else "it names no experts"
    kind = f" ({found.architecture})" if found.architecture else ""
    return f"{found.path}{kind}: {says}: a dense model, every token reads all weights whatever the chunk"


def _asked(found: modelfile.ModelExperts | None, experts: int | None, used: int | None, target: float) -> _Asked:
    total = experts if experts is not None or found is None else found.total
    chosen = used if used is not None or found is None else found.used
    for option, value in (("--experts", total), ("--used", chosen)):
        if value is None and found is None:
            raise UsageError(f"{option}: expected a count, or a model that has it: agentload quantum MODEL.gguf")
        if value is None and found is not None:
            raise UsageError(f"{option}: expected a count, {found.path} does not tell it")
    assert total is not None
    assert chosen is not None
    if not 1 <= chosen <= total:
        where = "--used" if used is not None or found is None else f"{found.path}: {' and '.join(found.keys)}"
        raise UsageError(f"{where}: expected 1 to {total} experts a token, of {total}, got {chosen}")
    return _Asked(total, chosen, target, found)


def _answer(asked: _Asked, measured: Sequence[Measured]) -> dict[str, Any]:
    chunk = moe.chunk_for(asked.target, asked.experts, asked.used)
    probe = published.load().probe
    machine = Costs(profile.load(_PROFILE), 0, 0, noise=False)
    middle = probe.prompt_tokens // 2  # a gap grows with the context: the one in the middle of the probe's prompt
    step_s = machine.decode_step_ns(probe.decoders, 0, after_quantum=True) / SECOND_NS
    rows = [
        {
            "tokens": tokens,
            "unique_experts": moe.unique_experts(tokens, asked.experts, asked.used),
            "tokens_per_expert": moe.tokens_per_expert(tokens, asked.experts, asked.used),
            "gap_s": machine.engine_call_ns(middle, tokens, 0) / SECOND_NS + step_s,
            "published_gap_s": probe.gap_s.get(tokens),
            "measured_gap_s": [one.gap_s for one in measured if one.chunk_tokens == tokens],
        }
        for tokens in sorted({*_ROWS, chunk.power_of_two_tokens, *_chunks(measured)})
    ]
    model = asked.model
    told = {name: grade(name) for name in ("unique_experts", "tokens_per_expert")}
    told["power_of_two_tokens"] = grade("recommended_quantum_tokens")
    return {
        "model": None
        if model is None
        else {
            "path": str(model.path),
            "architecture": model.architecture,
            "experts": model.total,
            "used": model.used,
            "shared": model.shared,
            "keys": list(model.keys),
        },
        "experts": asked.experts,
        "used": asked.used,
        "target_tokens_per_expert": asked.target,
        "raw_tokens": chunk.raw_tokens,
        "power_of_two_tokens": chunk.power_of_two_tokens,
        "rows": rows,
        "gaps": {
            "of": f"profile {_PROFILE}: {probe.source}",
            "decoders": probe.decoders,
            "prompt_tokens": probe.prompt_tokens,
            "evidence": "estimate",
            "assumption": "one published machine and model, not yours",
            "measured": [asdict(one) for one in measured],
        },
        "grades": {name: {"grade": one.grade.value, "reason": one.reason} for name, one in told.items()},
    }


def _chunks(measured: Sequence[Measured]) -> set[int]:
    return {one.chunk_tokens for one in measured if one.chunk_tokens is not None}


def _text(asked: _Asked, answer: dict[str, Any]) -> str:
    page = Page()
    model = asked.model
    if model is not None:
        shared = "" if not model.shared else f"; {model.shared} shared beside them, which every token uses"
        page.say(
            f"{model.path}{f' ({model.architecture})' if model.architecture else ''}: {', '.join(model.keys)}{shared}"
        )
    best = answer["power_of_two_tokens"]
    page.say(
        f"{asked.experts} experts, {asked.used} used by a token: {asked.target:g} tokens an expert need a chunk of "
        f"{asked.target:g} x {asked.experts} / {asked.used} = {answer['raw_tokens']:,.0f} tokens; the power of two to "
        f"try: {best}"
    )
    page.gap()
    gaps = answer["gaps"]
    own = ("measured s",) if gaps["measured"] else ()
    page.table(
        "Prefill chunk, what it wakes, and how long neighbours wait for their next token (*: another machine's)",
        ("chunk tokens", "unique experts", "tokens an expert", "gap s *", "published s *", *own, ""),
        [
            (
                str(row["tokens"]),
                f"{row['unique_experts']:.1f}",
                f"{row['tokens_per_expert']:.1f}",
                f"{row['gap_s']:.2f}",
                "-" if row["published_gap_s"] is None else f"{row['published_gap_s']:g}",
                *(", ".join(f"{gap:.2f}" for gap in row["measured_gap_s"]) or "-" for _ in own),
                "<- try" if row["tokens"] == best else "",
            )
            for row in answer["rows"]
        ],
    )
    page.say(
        f"* estimate, not for your machine: what the cost model of one published machine and its model ({_PROFILE}) "
        f"gives with {gaps['decoders']} sessions decoding while a prompt of {gaps['prompt_tokens']:,} tokens is "
        "prefilled, and what was published" + ("." if own else ". Yours: agentload probe, and --from.")
    )
    for one in gaps["measured"]:
        chunk = "a chunk that no setting tells" if one["chunk_tokens"] is None else f"chunk {one['chunk_tokens']}"
        longest = "" if one["longest_s"] is None else f", longest {one['longest_s']:.2f} s"
        page.say(
            f"measured{' (SIMULATED)' if one['simulated'] else ''}: {one['of']}, {chunk}, load {one['load']}: gap "
            f"{one['gap_s']:.2f} s (median){longest}"
        )
    reason = answer["grades"]["unique_experts"]["reason"]
    page.say(f"unique experts and tokens an expert: estimate ({reason}); the chunk to try: a judgement, not a result")
    page.say(
        "powers of two alone, since other chunks leave a remainder at the engine's own boundary; the chunk is set by: "
        "ds4-server --mixed-prefill-quantum, llama.cpp -ub (with -b at least as large), vLLM --max-num-batched-tokens, "
        "SGLang --chunked-prefill-size"
    )
    return page.text()
