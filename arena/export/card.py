"""The dataset card of an export: YAML front matter that dataset hubs read, and one page for people.

A function of the manifest and of the agents' rows, without clock or paths of a host. It states what was left
out as loudly as what is in. Each of its code blocks runs as it stands, in the folder that the card stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from arena.export.agents import AgentRow, SourceState
from arena.export.files import AGENTS
from arena.export.model import Format, Manifest
from problems.model import POOLS

CARD = "README.md"
_AGENTS_SHOWN = 50
_MARKS = "\\`*_[]<>|#"  # what would end a cell of foreign text, or begin something in it
_MIXED = "mixed"  # the split of a view that does not part pools, where more than `train` was asked for
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


class Split(msgspec.Struct, frozen=True):
    """A split of the rows: its files as a glob from the card's folder, and how many rows they have."""

    name: str
    glob: str
    rows: int


_FRONT = """---
pretty_name: {name}
{licence}
language:
- en
task_categories:
- text-generation
tags:
- agents
- tool-use
- trajectories
- shopping
size_categories:
- {size}
{more}---
"""


def front_matter(name: str, rows: int, splits: Sequence[Split], licence: str = "") -> str:
    """The front matter of a dataset card as hubs read it; columns and their types are read from the files. `licence`:
    an SPDX id."""
    more = []
    if splits:
        more += ["configs:", "- config_name: default", "  data_files:"]
        more += [line for one in splits for line in (f"  - split: {one.name}", f"    path: {one.glob}")]
    size = next((size for limit, size in _SIZES if rows < limit), "n>1M")
    licence = f"license: {licence.lower()}" if licence else "license: other\nlicense_name: see-the-card"
    return _FRONT.format(name=name, size=size, licence=licence, more="".join(f"{line}\n" for line in more))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown. A head that starts with ">" names a column of numbers."""
    lines = [f"| {' | '.join(name.removeprefix('>') for name in head)} |"]
    lines.append("|" + "".join("--:|" if name.startswith(">") else "---|" for name in head))
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def escape_cell(text: str) -> str:
    """Foreign text in one line, as Markdown that says nothing else."""
    return "".join(f"\\{sign}" if sign in _MARKS else sign for sign in text if sign.isprintable())


_ABOUT = """# Agent arena trajectories

Shopping agents at work on ShoppingBench problems, recorded by the host that executed their tool calls and model
requests: who emitted each call, the model or the Python around it, was attributed from recorded bytes, not from what an
agent says. Outcomes were scored by rule, reasoning was judged with citations that stand verbatim in the trace.

{table}
"""

_AGENTS = """## Agents

{table}

`agents.jsonl` has a row for each agent version, with the hash of its source. To read it: `select * from 'agents.jsonl'`
in DuckDB, `polars.read_ndjson`, or `load_dataset("json", data_files="agents.jsonl")`.

A file in `agents/` is a winner's source, published when the embargo after its promotion had ended, byte for byte as it
was committed. A source that holds what looks like a credential is left out whole: with something removed, it would no
longer have the hash that was committed.
"""

_SOURCE: dict[SourceState, str] = {
    "here": "[source]({file})",
    "embargo": "under embargo until {ends} UTC",
    "not_promoted": "its miner's: no promotion opened it",
    "secret": "left out: holds what looks like a credential",
    "missing": "open, but not kept by this validator",
}

WITHHELD: dict[str, str] = {
    "unreleased": "their race is not released yet; a later export brings them",
    "pool": "their problems' pool was not asked for by name (--pool)",
    "filter": "the filters leave them out, or they are of a control agent that was not asked for",
    "exported": "an earlier export of this cursor brought them",
    "secret": "their signed bytes hold what looks like a credential; the views have them with it removed",
    "oversize": "larger than this export allows",
    "undecodable": "can't be read as a record or body of a version this release knows: quarantined",
}

_LEFT_OUT = """## What was left out

Every record of the range stands in `log/` of the export, whole or as a stub with its reason.

{table}

Quarantined records: {quarantined}. Trained on: `train` only. `dev` may choose and diagnose, `eval` and `never_touch`
may not be trained on, and stand here only when the export named them.
"""

_READING = """## Reading it

Run these in the folder of this file. One row is one episode; [FORMATS.md](FORMATS.md) says what each column means.
Scores and shares that end in `_e4` are ten-thousandths. What is not known is null, never 0. `messages`, `tools` and
`calls` are nested; arguments of calls, `completions`, `other_messages` and `opinions` are JSON text, because Arrow
would fill arguments with nulls.
"""

_WITH_DATASETS = """For supervised training, keep the conversations that the model itself wrote:

```python
from pathlib import Path

from datasets import load_dataset

rows = load_dataset(str(Path.cwd()), split="{split}")
kept = rows.filter(lambda row: row["is_agentic"] and row["is_linear"] and row["is_model_written"])
print(len(rows), "episodes,", len(kept), "of them written by the model throughout")
for row in kept.select(range(min(1, len(kept)))):
    print([message["role"] for message in row["messages"]])  # OpenAI chat messages
```
"""

_WITH_TABLES = """As a table, without the conversations:

```python
import duckdb

print(duckdb.sql("select seq, agent_name, bucket, is_success, episode_ms from '{glob}' order by seq limit 5"))
```

```python
import polars as pl

rows = pl.scan_parquet("{glob}")
print(rows.group_by("agent_name", "bucket").agg(pl.len(), pl.col("is_success").mean()).collect())
```
"""

_TABLE = """What each agent solved and what it cost (DuckDB). `asr` is the success rate in per cent; episodes that could
not be scored are left out of it and counted as `unscored`. A sum of money is null where the price of an episode is not
known (`unpriced`). `against_dearest` is the cost of a solved problem, divided by that of the most expensive row.

```sql
with rows as (
  select coalesce(agent_name, agent_version_id, 'all') as agent,
    case when grouping(agent_version_id) = 1 then 'all' else models end as models,
    count(*) as episodes,
    round(avg(is_agentic::int), 4) as agentic_share,
    count(*) filter (is_success) as solved,
    count(*) - count(is_success) as unscored,
    round(100.0 * count(*) filter (is_success) / nullif(count(is_success), 0), 1) as asr,
    sum(prompt_tokens)::bigint as prompt_tokens,
    sum(completion_tokens)::bigint as completion_tokens,
    count(*) - count(priced_micro_usd) as unpriced,
    case when count(*) = count(priced_micro_usd) then sum(priced_micro_usd) / 1e6 end as usd,
    round(median(episode_ms) / 1000, 3) as median_s
  from '{glob}'
  group by grouping sets ((), (agent_version_id, agent_name, models))
)
select *, usd / nullif(solved, 0) as usd_per_solved,
  round(usd_per_solved / max(usd_per_solved) over (), 4) as against_dearest
from rows order by agent = 'all', asr desc, agent
```
"""

_WITH: dict[Format, str] = {
    "messages": """Chat lines for fine-tuning:

```sh
zstdcat views/messages/*.jsonl.zst | jq -c 'select(.metadata.is_model_written) | [.messages[].role]'
```
""",
    "inspect": """With `inspect`: its viewer (`inspect view start --log-dir views/inspect`), Python, or a static site:

```python
from inspect_ai.log import list_eval_logs, read_eval_log

for path in list_eval_logs("views/inspect"):
    log = read_eval_log(path)
    print(log.eval.task, len(log.samples), log.results.scores[0].name if log.results.scores else "nothing scored")
```

```sh
inspect view bundle --log-dir views/inspect --output-dir ../inspect-bundle
```
""",
}

_WITHOUT_TABLES = """This export has no table of its rows (`arena records export --format parquet` writes one). The log:

```sh
zstdcat log/*.jsonl.zst | jq -c '[.seq, .withheld, .content.payload.kind]'
```
"""

_VERIFYING = """## Verifying it

`log/` holds signed records, `checkpoints/` a signed checkpoint. This checks, offline, signatures, hash chain, tree,
checkpoint and manifest, makes every view again from the log and compares the bytes:

```sh
arena records verify --export .
```
"""

_LICENCE = """## Licence

{terms}\
Queries and product data come from ShoppingBench (Apache-2.0) where the production catalogue was used. What models wrote
is subject to the terms of the models named in `models`. An agent's source is its author's: the rules of the race
publish it and grant no licence.{rest}
"""
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


def render_card(manifest: Manifest, agents: Sequence[AgentRow], licences: Mapping[str, str]) -> str:
    """The card, Markdown with front matter. `licences`: what policies say of the use of traces, by hash."""
    splits = _splits(manifest)
    terms = {name: licences.get(name, "") for name in manifest.policies}
    (only, *others) = sorted(set(terms.values())) or [""]
    withheld = [(reason, str(count), WITHHELD.get(reason, "")) for reason, count in sorted(manifest.withheld.items())]
    left_out = _LEFT_OUT.format(
        table=markdown_table(("reason", "records", "why"), withheld) if withheld else "Nothing.",
        quarantined=", ".join(map(str, manifest.quarantined[:50])) or "none",
    )
    parts = [
        front_matter(
            "Agent arena trajectories",
            manifest.trajectories,
            splits,
            only if not others and _SPDX.fullmatch(only) else "",
        ),
        _about(manifest, splits),
        _agents(agents),
        left_out,
    ]
    return "\n".join([*parts, *_reading(manifest, splits), _VERIFYING, _licence(terms)])


def _licence(terms: Mapping[str, str]) -> str:
    """A sentence for each policy of what it lets be done with traces; miners saw it before they submitted."""
    if not any(terms.values()):
        return _LICENCE.format(terms="", rest=" Whoever publishes this dataset states its licence here.")
    stated = [
        f"Traces under policy `{name[:12]}` may be used under: {escape_cell(said)}.\n"
        if said
        else f"Policy `{name[:12]}` states no terms for the use of its traces: ask the operator of the subnet.\n"
        for name, said in sorted(terms.items())
    ]
    return _LICENCE.format(terms="".join(stated) + "\n", rest="")


def _splits(manifest: Manifest) -> list[Split]:
    """Where the rows are as tables: by pool in the `datasets` view, or else all of a pass in Parquet."""
    if "datasets" in manifest.request.formats:
        begins = {str(pool): f"views/datasets/data/{pool}-" for pool in POOLS}
    else:
        begins = {"train" if manifest.request.pools == ("train",) else _MIXED: "views/parquet/"}
    splits = []
    for name, begin in begins.items():
        if files := [file for file in manifest.files if file.path.startswith(begin)]:
            splits.append(Split(name, f"{begin}*.parquet", sum(file.rows for file in files)))
    return splits


def _about(manifest: Manifest, splits: Sequence[Split]) -> str:
    log, request = manifest.log, manifest.request
    stated = {} if manifest.libraries is msgspec.UNSET else manifest.libraries
    libraries = {name: [f"{kind} {count}" for kind, count in sorted(found.items())] for name, found in stated.items()}
    facts = [
        ("validator", f"`{log.validator}`"),
        ("records of its log", f"{log.first_seq} to {log.last_seq}"),
        ("trajectories", str(manifest.trajectories)),
        ("splits", ", ".join(f"{split.name} ({split.rows})" for split in splits) or "none"),
        ("policies", _names(manifest.policies)),
        ("partitions", _names(manifest.partitions)),
        ("races", _names(manifest.races)),
        ("pools asked for", ", ".join(request.pools)),
        ("with credentials removed", str(manifest.scrubbed)),
        *((f"private data found by {name}, left in", _names(found)) for name, found in sorted(libraries.items())),
        ("anchored at block", str(log.anchor_block) if log.anchor_block else "not anchored"),
        ("made by", f"`{manifest.software}`, layout version {manifest.version}"),
    ]
    return _ABOUT.format(table=markdown_table(("what", "value"), facts))


def _agents(agents: Sequence[AgentRow]) -> str:
    shown = sorted(agents, key=lambda row: (-row.trajectories, row.agent_version_id))[:_AGENTS_SHOWN]
    rows = [
        (
            escape_cell(row.name or "unknown"),
            f"`{row.agent_version_id[:12]}`",
            f"`{row.miner_hotkey}`" if row.miner_hotkey else "none: a control",
            str(row.trajectories),
            _SOURCE[row.source].format(file=row.file, ends=(row.embargo_ends or "")[:16].replace("T", " ")),
        )
        for row in shown
    ]
    table = markdown_table(("name", "version", "miner", "trajectories", "source"), rows) if rows else "None."
    more = f"\n\n{len(agents) - len(shown)} more are in `{AGENTS}`." if len(agents) > len(shown) else ""
    return _AGENTS.format(table=table + more)


def _reading(manifest: Manifest, splits: Sequence[Split]) -> list[str]:
    """How to read what is there, and nothing else."""
    parts = [_READING]
    if splits:
        names = [split.name for split in splits]
        glob = f"{splits[0].glob.rpartition('/')[0]}/*.parquet"
        parts.append(_WITH_DATASETS.format(split="train" if "train" in names else names[0]))
        parts += [_WITH_TABLES.format(glob=glob), _TABLE.format(glob=glob)]
    parts += [_WITH[name] for name in manifest.request.formats if name in _WITH]
    return parts if splits else [*parts, _WITHOUT_TABLES]


def _names(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "none"
