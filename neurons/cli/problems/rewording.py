"""`arena problems reword`: problems in a model's words, where every constraint survives them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.options import JsonLinesOption, ProblemFile
from neurons.cli.presenter import show
from neurons.cli.problems.reading import read_file, refuse_existing
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from arena.bank.rephrasing import Reworded, Unworded

_TIMEOUT_MS = 120_000


def reword(
    path: ProblemFile,
    out: Annotated[Path, typer.Option(help="File to write; refused when it exists.")],
    base_url: Annotated[str, typer.Option(help="The endpoint, with its version path: http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option(help="The model that writes, by the endpoint's name for it.")],
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="Of each request.")] = 0.9,
    attempts: Annotated[int, typer.Option(min=1, help="Replies a problem, the last of them told what was lost.")] = 3,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Problems at a time.")] = 4,
    seed: Annotated[int, typer.Option(help="For endpoints that take one.")] = 0,
    as_json: JsonLinesOption = False,
) -> None:
    """Have a model say problems in other words, and keep only wordings that say every constraint and no other.

    Code reads each reply back item by item. One that loses or adds something is sent back with the reason; after the
    last attempt the problem keeps its own words, and why is shown. Answers, prices and the voucher's paragraph stay as
    they are, and so do ids and leak clusters. The model sees neither answers' ids nor the voucher.

    arena problems synthesize --catalogue index --count 120 --out bank.jsonl

    arena problems reword bank.jsonl --out worded.jsonl --base-url http://127.0.0.1:8000/v1 --model qwen3-32b

    The key is read from OPENAI_API_KEY. Nothing is written when the endpoint fails (exit code 3). OUT has one problem a
    line and mode 0600. Next: `arena problems partition` and `seal`.
    """
    from arena.bank.rephrasing import Reworded, Sampling, reword_or_keep
    from foundation.durable_files import write_whole
    from harness.inference.client import OpenAIUpstream
    from problems.suites.formats import write_problems

    refuse_existing(out)
    problems = read_file(path)
    upstream = OpenAIUpstream("reword", base_url, os.environ.get("OPENAI_API_KEY", ""), _TIMEOUT_MS)
    sampling = Sampling(model=model, temperature_e4=round(temperature * 10_000), seed=seed)
    made: list[Reworded | Unworded] = []
    with show_progress(is_quiet=as_json) as progress, ThreadPoolExecutor(parallel) as pool:
        try:
            for one in pool.map(lambda problem: reword_or_keep(problem, upstream, sampling, attempts), problems):
                made.append(one)
                progress("reword", len(made), len(problems))
        finally:
            pool.shutdown(cancel_futures=True)
    write_whole(out, "".join(f"{line}\n" for line in write_problems(one.problem for one in made)).encode(), mode=0o600)
    told = {"problems": len(made), "reworded": sum(isinstance(one, Reworded) for one in made), "path": str(out)}
    kept = [
        {"problem_id": one.problem.problem_id, "code": one.failure.code, "detail": one.failure.detail}
        for one in made
        if not isinstance(one, Reworded)
    ]
    replies = sum(one.attempts for one in made)
    lines = [f"{one['problem_id']} keeps its words: {one['code']} {one['detail']}" for one in kept]
    lines.append(f"{told['reworded']} of {len(made)} problems reworded in {replies} replies, written to {out}")
    show({**told, "replies": replies, "kept": kept}, lines, as_json=as_json)
