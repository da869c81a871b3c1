"""The words of a dataset card. The card fills in what stands in braces; code blocks run in the card's own folder."""

from __future__ import annotations

from arena.export.agents import SourceState
from arena.export.model import Format

ABOUT = """# Agent arena trajectories

Shopping agents at work on ShoppingBench problems, recorded by the host that executed their tool calls and model
requests: who emitted each call, the model or the Python around it, was attributed from recorded bytes, not from what an
agent says. Outcomes were scored by rule, reasoning was judged with citations that stand verbatim in the trace.

{table}
"""

AGENTS = """## Agents

{table}

`agents.jsonl` has a row for each agent version, with the hash of its source. To read it: `select * from 'agents.jsonl'`
in DuckDB, `polars.read_ndjson`, or `load_dataset("json", data_files="agents.jsonl")`.

A file in `agents/` is a winner's source, published when the embargo after its promotion had ended, byte for byte as it
was committed. A source that holds what looks like a credential is left out whole: with something removed, it would no
longer have the hash that was committed.
"""

SOURCE: dict[SourceState, str] = {
    "here": "[source]({file})",
    "embargo": "under embargo until {ends} UTC",
    "not_promoted": "its miner's: no promotion opened it",
    "secret": "left out: holds what looks like a credential",
    "missing": "open, but not kept by this validator",
}

WITHHELD = {
    "unreleased": "the race's batch is not released; a later export brings it",
    "pool": "the problem's pool was not asked for by name",
    "filter": "the filters of this export leave it out, or it is of a control agent that was not asked for",
    "exported": "an earlier export of this cursor brought it",
    "secret": "its signed bytes hold what looks like a credential; the trajectory is here with it removed",
    "oversize": "larger than this export allows",
    "undecodable": "its bytes are not a record or body of a version this release reads: quarantined",
}

LEFT_OUT = """## What was left out

Every record of the range stands in `log/` of the export, whole or as a stub with its reason.

{table}

Quarantined records: {quarantined}. Trained on: `train` only. `dev` may choose and diagnose, `eval` and `never_touch`
may not be trained on, and stand here only when the export named them.
"""

READING = """## Reading it

Run these in the folder of this file. One row is one episode; [FORMATS.md]({layout}) says what each column means. Scores
and shares that end in `_e4` are ten-thousandths. What is not known is null, never 0. `messages`, `tools` and
`calls` are nested; arguments of calls, `completions`, `other_messages` and `opinions` are JSON text, because Arrow
would fill arguments with nulls.
"""

WITH_DATASETS = """For supervised training, keep the conversations that the model itself wrote:

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

WITH_TABLES = """As a table, without the conversations:

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

TABLE = """What each agent solved and what it cost (DuckDB). `asr` is the success rate in per cent; episodes that could
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

WITH: dict[Format, str] = {
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

WITHOUT_TABLES = """This export has no table of its rows (`arena records export --format parquet` writes one). The log:

```sh
zstdcat log/*.jsonl.zst | jq -c '[.seq, .withheld, .content.payload.kind]'
```
"""

VERIFYING = """## Verifying it

`log/` holds signed records, `checkpoints/` a signed checkpoint. This checks, offline, signatures, hash chain, tree,
checkpoint and manifest, makes every view again from the log and compares the bytes:

```sh
arena records verify --export .
```
"""

VERIFYING_ABOVE = """## Verifying it

The export this view belongs to (two folders above) holds signed records and a signed checkpoint. `arena records verify
--export EXPORT` checks, offline, signatures, hash chain, tree, checkpoint and manifest, makes every view again from the
log and compares the bytes.
"""

LICENCE = """## Licence

Queries and product data come from ShoppingBench (Apache-2.0) where the production catalogue was used. What models wrote
is subject to the terms of the models named in `models`. An agent's source is its author's: the rules of the race
publish it and grant no licence. Whoever publishes this dataset states its licence here.
"""
