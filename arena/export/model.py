"""What an export is made of: its request, the rows views are written from, and the manifest that says what is in it.

A folder of an export holds the log it was made from (`log/`: every record of a range, whole or as a stub), so
everything else in it can be checked offline against signatures and a signed checkpoint; whatever was left out is a stub
with its reason and a count in the manifest. Nothing here decides who may see what: `arena.visibility.rule` does.

```
manifest.json                          Manifest, canonical JSON; `manifest.sha256` beside it, and `manifest.sig` where
                                       a hotkey signed it
checkpoints/<validator>-<size>.txt     signed notes: one each at the end of the range (and at its start, if not 0)
log/<shard>.jsonl.zst                  one LogRow a line: the canonical format
references.jsonl.zst                   LogRows from outside the range that rows in it refer to, where there are any
scrubbed/<shard>.jsonl.zst             Trajectories with credentials removed, whose log rows are withheld as `secret`
views/<format>/...                     parquet, made from the log rows; messages, datasets, inspect, verifiers from it
README.md, FORMATS.md                  the dataset card, and what is in a view
agents.jsonl                           one AgentRow a line; `agents/<sha256>.py` are the sources that are open
policies/<sha256>.json                 the rules that trajectories name, where a settlement states them
```
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.records.log import LogStart
from arena.records.model import Envelope, EvaluationRecord, RecordContent
from harness.trace import EvaluationBody
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import Bucket, Pool

MANIFEST_VERSION = 1  # of layout, columns and cards
MANIFEST_DOMAIN = b"agent-arena/manifest/1"

Format = Literal["jsonl", "parquet", "messages", "datasets", "inspect", "verifiers"]
FORMATS: tuple[Format, ...] = ("jsonl", "parquet", "messages", "datasets", "inspect", "verifiers")

Withheld = Literal[
    "unreleased",  # the race is not released, or its traces are under embargo: a later export brings it
    "pool",  # the problem's pool was not asked for by name
    "filter",  # the request's filters leave it out
    "exported",  # an earlier export of this cursor brought it
    "secret",  # it holds what looks like a credential, which can't be removed from signed bytes
    "oversize",  # larger than the request allows
    "undecodable",  # its bytes are not a record or body of a version this release reads: quarantined
]


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which evaluations are asked for. Empty means all. Days are UTC days of `recorded_ms`, both inclusive."""

    from_day: str = ""  # YYYY-MM-DD
    to_day: str = ""
    races: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()  # agent version ids, or miner hotkeys
    buckets: tuple[Bucket, ...] = ()
    coefficient_e4_min: int = 0  # of the verdict that counts; above 0, rows without a verdict are left out
    is_agentic_only: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What an export was asked for. `pools`: `train` unless others are named."""

    validator: str
    formats: tuple[Format, ...] = ("jsonl",)
    pools: tuple[Pool, ...] = ("train",)
    filters: Filters = Filters()
    rows_per_shard: int = 1_000
    row_bytes_max: int = 4 << 20
    arguments: Literal["text", "object"] = "text"  # of calls in `messages`

    @property
    def forms(self) -> tuple[Format, ...]:
        """The views to write: Parquet first, which every other form is made from, and none for the log alone."""
        others = tuple(name for name in self.formats if name not in ("jsonl", "parquet"))
        return ("parquet", *others) if others or "parquet" in self.formats else ()


class Cursor(LogStart, frozen=True, kw_only=True):
    """Where the next export goes on: after the last record in front of which nothing waits for its release.

    `races` were exported although records of theirs stand after `after_seq`: their rows up to `exported_to` (the end of
    the export that wrote the cursor) are not brought twice, nor are rows there that belong to no race.
    """

    races: tuple[str, ...] = ()
    exported_to: int = 0


class LogRow(Envelope, frozen=True, kw_only=True):
    """One record of the range, one line of `log/`. `content` and `body` are the canonical bytes themselves, embedded as
    JSON objects; a row that is withheld keeps what chain, tree and signature need, and its reason."""

    content: msgspec.Raw | None = None
    body: msgspec.Raw | None = None  # of an evaluation
    withheld: Withheld | None = None


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """One exported evaluation, whole: what every view is written from. `verdict` is the one that counts (the
    first, and a refusal only without one)."""

    validator: str
    seq: int
    content_sha256: str
    signature: str
    content: RecordContent
    evaluation: EvaluationRecord  # content.payload
    body: EvaluationBody
    verdict: Verdict | UnscoredVerdict | None
    verdict_seq: int  # 0 without one
    pool: Pool
    cluster_id: str


class ShardFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the export. `path` is relative, with forward slashes."""

    path: str
    sha256: str
    size_bytes: int
    rows: int


class LogRange(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one validator's log that the export covers: records first_seq..last_seq, every one of them.

    `start` is where the range begins (its head and frontier), `end_note` the signed note whose size is `last_seq`.
    """

    validator: str
    first_seq: int
    last_seq: int
    start: Cursor
    end_note: str
    start_note: str = ""  # a signed checkpoint of size first_seq - 1, where one exists
    anchor_block: int = 0  # of the end note, 0 when it is not anchored
    embargoed: tuple[str, ...] = ()  # released races whose embargo ran when it began


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the export, what was left out and why, how to go on. Written last: without it nothing is complete."""

    version: int = MANIFEST_VERSION
    exported_ms: int  # when it was begun (unix ms): sources open by then are here
    request: Request
    log: LogRange
    cursor: Cursor  # for the next export
    records: dict[str, int]  # whole rows by kind
    withheld: dict[str, int]  # stubs by reason
    quarantined: tuple[int, ...] = ()  # sequence numbers that can't be read
    trajectories: int
    scrubbed: int = 0  # trajectories whose views had credentials removed; their log rows are withheld as `secret`
    libraries: dict[str, dict[str, int]] | msgspec.UnsetType = msgspec.UNSET  # what each found
    policies: tuple[str, ...]  # policy hashes of the trajectories
    partitions: tuple[str, ...]
    races: tuple[str, ...]
    files: tuple[ShardFile, ...]
    software: str
