"""The dataset card of an export: YAML front matter that `datasets` reads, and one page for people. Pure.

Promise: a function of the manifest, without clock or paths of a host. It states what was left out as loudly as what is
in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena.export.formats.parquet import column_types
from arena.export.model import Manifest
from problems.model import POOLS, Pool

_DATA = "views/datasets/data/"
_WITHHELD = {
    "unreleased": "the race's batch is not released; a later export brings it",
    "pool": "the problem's pool was not asked for by name",
    "filter": "the filters of this export leave it out",
    "exported": "an earlier export of this cursor brought it",
    "secret": "its signed bytes hold what looks like a credential; the trajectory is here with it removed",
    "oversize": "larger than this export allows",
    "undecodable": "its bytes are not a record or body of a version this release reads: quarantined",
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def render_card(manifest: Manifest) -> str:
    """The card, Markdown with front matter. Splits are counted from the manifest's files of this view."""
    counts = {pool: [file.rows for file in manifest.files if file.path.startswith(f"{_DATA}{pool}-")] for pool in POOLS}
    splits = {pool: sum(rows) for pool, rows in counts.items() if rows}
    head = ("day (UTC)", "trajectories", "teams", "agents")
    days = [
        (
            day.day,
            *map(str, (day.trajectories, day.teams, day.agents)),
            _fixed(day.top_agent_share_e4, 4),
            _fixed(day.shape_entropy_mbit, 3),
            _fixed(day.agentic_share_e4, 4),
        )
        for day in manifest.diversity
    ]
    withheld = [(reason, str(count), _WITHHELD.get(reason, "")) for reason, count in sorted(manifest.withheld.items())]
    left_out = _LEFT_OUT.format(
        table=_table(("reason", "records", "why"), withheld) if withheld else "Nothing.",
        quarantined=", ".join(map(str, manifest.quarantined[:50])) or "none",
    )
    varied = _table((*head, "top agent's share", "shape entropy (bits)", "agentic share"), days)
    diversity = f"## Diversity\n\n{varied if days else 'No trajectories.'}\n"
    return "\n".join((_front_matter(manifest, splits), _about(manifest, splits), left_out, diversity, _USE))


def _front_matter(manifest: Manifest, splits: Mapping[Pool, int]) -> str:
    size = next((name for limit, name in _SIZES if manifest.trajectories < limit), "n>1M")
    lines = ["---", "pretty_name: Agent arena trajectories", "license: other", "license_name: see-the-card"]
    lines += ["language:", "- en", "task_categories:", "- text-generation", "tags:", "- agents", "- tool-use"]
    lines += ["- trajectories", "- shopping", "size_categories:", f"- {size}"]
    lines += ["dataset_info:", "  features:"]
    for name, kind in column_types().items():
        lines += [f"  - name: {name}", f"    dtype: {kind}"]
    if splits:
        lines.append("  splits:")
        for pool, rows in splits.items():
            lines += [f"  - name: {pool}", f"    num_examples: {rows}"]
        lines += ["configs:", "- config_name: default", "  data_files:"]
        for pool in splits:
            lines += [f"  - split: {pool}", f"    path: data/{pool}-*.parquet"]
    return "\n".join([*lines, "---", ""])


def _about(manifest: Manifest, splits: Mapping[Pool, int]) -> str:
    log, request = manifest.log, manifest.request
    facts = (
        ("validator", f"`{log.validator}`"),
        ("records of its log", f"{log.first_seq} to {log.last_seq}"),
        ("trajectories", str(manifest.trajectories)),
        ("splits", ", ".join(f"{pool} ({rows})" for pool, rows in splits.items()) or "none"),
        ("policies", _names(manifest.policies)),
        ("partitions", _names(manifest.partitions)),
        ("races", _names(manifest.races)),
        ("pools asked for", ", ".join(request.pools)),
        ("with credentials removed", str(manifest.scrubbed)),
        ("anchored at block", str(log.anchor_block) if log.anchor_block else "not anchored"),
        ("made by", f"`{manifest.software}`"),
    )
    return f"""# Agent arena trajectories

Shopping agents at work on ShoppingBench problems, recorded by the host that executed their tool calls and model
requests: who emitted each call, the model or the Python around it, was attributed from recorded bytes, not from what an
agent says. Outcomes were scored by rule, reasoning was judged with citations that stand verbatim in the trace.

{_table(("what", "value"), facts)}
"""


_LEFT_OUT = """## What was left out

Every record of the range stands in `log/` of the export, whole or as a stub with its reason.

{table}

Quarantined records: {quarantined}. Trained on: `train` only. `dev` may choose and diagnose, `eval` and `never_touch`
may not be trained on, and stand here only when the export named them.
"""


_USE = """## Reading it

```python
from datasets import load_dataset

rows = load_dataset("PATH", split="train").filter(
    lambda row: row["is_agentic"] and row["is_linear"] and row["is_model_written"]
)
messages = json.loads(rows[0]["messages"])  # OpenAI chat messages; `tools`, `completions`, `calls` are JSON text, too
```

`messages`, `completions`, `other_messages`, `calls`, `tools` and `opinions` are JSON text, because Arrow would fill
arguments with nulls. Scores and shares that end in `_e4` are ten-thousandths. What each column means, and how a
conversation is made of a trajectory whose prompts were rewritten, says `arena/export/FORMATS.md` of the software.

## Verifying it

The folder above this one holds signed log rows and a signed checkpoint. `arena records verify EXPORT` checks, offline,
signatures, hash chain, tree, checkpoint and manifest, makes every view again from the log rows and compares the bytes.

## Licence

Queries and product data come from ShoppingBench (Apache-2.0) where the production catalogue was used. What models wrote
is subject to the terms of the models named in `models`. Whoever publishes this dataset states its licence here.
"""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = [f"| {' | '.join(head)} |"]
    columns.append("|" + "---|" * (columns[0].count("|") - 1))
    return "\n".join([*columns, *(f"| {' | '.join(row)} |" for row in rows)])


def _names(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "none"


def _fixed(value: int, digits: int) -> str:
    """An integer of 10^-digits as a decimal."""
    whole, rest = divmod(value, 10**digits)
    return f"{whole}.{rest:0{digits}d}"
