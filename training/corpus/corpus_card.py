"""The dataset card of a corpus: front matter that `datasets` reads, and one page for people. Pure."""

from __future__ import annotations

import json

import msgspec

from foundation.canonical import content_hash
from foundation.codes import lookup
from training.corpus.corpus_rows import JSON, columns
from training.corpus.filter.funnel import Distribution, Funnel
from training.corpus.model import Lineage, RejectCode

_DTYPE: dict[type | str, str] = {str: "string", int: "int64", bool: "bool", JSON: "string"}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
MEANING: dict[RejectCode, str] = {
    "pool": "not of the pools this corpus may hold",
    "leak": "its problem or answers are those of a held-out problem",
    "coefficient": "the judge's reasoning coefficient is below the threshold, or there is none",
    "pairing": "a tool call is not answered once right after its turn",
    "recommend_count": "recommend_product is not called exactly once",
    "recommend_arguments": "the recommendation does not parse, or names a product no search returned",
    "tokens": "longer than the token budget",
    "think_stop": "ends without a commitment",
    "subtask": "the model did not write its own tool calls, by recorded emitters",
    "subtask_guess": "the model probably did not write its own tool calls (a guess: none were recorded)",
    "not_one_path": "the episode held several conversations",
    "view_incomplete": "put together from the record, and some turn was not shown all that stands before it",
    "duplicate": "equal to a kept trace, ids and numbers aside",
    "near_duplicate": "nearly equal to a kept trace",
    "ranked_out": "better traces of the same problem were taken",
    "sampled_out": "not drawn for a corpus of this size",
    "failed": "the outcome was no success, or nobody knows it",
}


def render_card(lineage: Lineage, funnel: Funnel, rows: int) -> str:
    """The card, Markdown with front matter."""
    return "\n".join((_front_matter(rows), _about(lineage, funnel, rows), _left_out(funnel), _shape(funnel), _USE))


def _front_matter(rows: int) -> str:
    size = next((name for limit, name in _SIZES if rows < limit), "n>1M")
    lines = ["---", "pretty_name: Agent arena corpus", "license: other", "license_name: see-the-card"]
    lines += ["language:", "- en", "task_categories:", "- text-generation", "tags:", "- agents", "- tool-use"]
    lines += ["- trajectories", "- shopping", "size_categories:", f"- {size}", "dataset_info:", "  features:"]
    for name, kind, _ in columns():
        lines += [f"  - name: {name}", f"    dtype: {_DTYPE[kind]}"]
    lines += ["  splits:", "  - name: train", f"    num_examples: {rows}"]
    lines += ["configs:", "- config_name: default", "  data_files:", "  - split: train", "    path: data/train.parquet"]
    return "\n".join([*lines, "---", ""])


def _about(lineage: Lineage, funnel: Funnel, rows: int) -> str:
    trusted = (
        "\n**Read from unsigned or unverified sources, because somebody said to trust them.**\n"
        if lineage.is_trusted_unsigned
        else ""
    )
    unjudged = f"{unjudged_text(funnel)}.\n\n" if funnel.unjudged else ""
    rules = json.dumps(msgspec.to_builtins(lineage.rules), indent=2)
    return (
        f"# Agent arena corpus\n\n{rows:,} agentic shopping trajectories out of {funnel.traces:,} "
        f"({_unread(funnel)}).\n{trusted}\n{unjudged}"
        f"Identity `{content_hash(lineage)}` (sha256 of `lineage.json`'s value); rows `{lineage.rows_sha256}`. Tokens "
        f"are counted by `{lineage.tokenizer_sha256}`; held-out problems are those of partition "
        f"`{lineage.partition_sha256}`; code `{lineage.code_commit}`.\n\nRules:\n\n```json\n{rules}\n```\n"
    )


def unjudged_text(funnel: Funnel) -> str:
    """What a report says of traces that no judge read."""
    return (
        f"{funnel.unjudged:,} traces are of a source without a judge: the judge's gate (`coefficient`) was off for "
        "them, and every other rule on"
    )


def _unread(funnel: Funnel) -> str:
    codes = ", ".join(f"{one.code} {lookup(one.code).title}: {one.count:,}" for one in funnel.unread)
    return f"{funnel.quarantined:,} further rows could not be read{f'; {codes}' if codes else ''}"


def _left_out(funnel: Funnel) -> str:
    lines = ["## Left out", "", "| code | broke it | only that | why |", "|---|---|---|---|"]
    lines += [f"| {one.code} | {one.count:,} | {one.alone:,} | {MEANING[one.code]} |" for one in funnel.codes]
    return "\n".join([*lines, "", "A trace may break several rules. Every one is listed in `rejected.jsonl.zst`.", ""])


def _shape(funnel: Funnel) -> str:
    lines = ["## Before and after", "", "| measure | median before | median after | 95 % after |", "|---|---|---|---|"]
    for name in msgspec.structs.fields(type(funnel.before)):
        before: Distribution = getattr(funnel.before, name.name)
        after: Distribution = getattr(funnel.after, name.name)
        cells = (before.quantile(5_000), after.quantile(5_000), after.quantile(9_500))
        lines.append(f"| {name.name} | " + " | ".join("-" if cell is None else f"{cell:,}" for cell in cells) + " |")
    one = funnel.diversity_after
    return "\n".join(
        [
            *lines,
            "",
            f"{one.teams:,} teams, {one.agents:,} agent versions, {one.problems:,} problems; the most frequent agent "
            f"wrote {one.top_agent_share_e4 / 100:.1f} %.",
            "",
        ]
    )


_USE = """## Use

`messages` and `tools` are JSON text: decode them, do not let a table library guess their types, which would add empty
argument keys to every call. Arguments of calls are text as the model wrote them. A message with weight 0 was not made
by model or host: mask it. Problems of the evaluation sets are not in here; keep it so when you mix in other data.
"""
