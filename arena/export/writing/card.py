"""The dataset card of an export: YAML front matter that dataset hubs read, and one page for people.

A function of the manifest and of the agents' rows, without clock or paths of a host. It states what was left
out as loudly as what is in. Each of its code blocks runs as it stands, in the folder that the card stands in. A card
stands in the export itself and, without agents, in the `datasets` view, so that either folder can be published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from arena.export.agents import AGENTS, LAYOUT, AgentRow
from arena.export.formats.nested import feature_lines
from arena.export.formats.parquet import column_types
from arena.export.model import Format, Manifest, ShardFile
from arena.export.writing import card_text
from arena.export.writing.shards import describe
from problems.model import POOLS

CARD = "README.md"
_DATA, _PARQUET = "views/datasets/data/", "views/parquet/"
_BY_POOL: dict[str, str] = {pool: f"{pool}-" for pool in POOLS}
_AGENTS_SHOWN = 50
_MARKS = "\\`*_[]<>|#"  # what would end a cell of foreign text, or begin something in it
_MIXED = "mixed"  # the split of a view that does not part pools, where more than `train` was asked for
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


class Split(msgspec.Struct, frozen=True):
    """A split of the rows: its files as a glob from the card's folder, their rows and bytes."""

    name: str
    glob: str
    rows: int
    size_bytes: int


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a card stands in: its place in the export, and what of the export is under it.

    `rows_glob` has every row once; it is "" where no view has rows as a table.
    """

    is_export: bool
    formats: tuple[Format, ...]
    rows_glob: str = ""
    splits: tuple[Split, ...] = ()

    @classmethod
    def of_export(cls, manifest: Manifest) -> Home:
        """The export's own folder."""
        formats = manifest.request.formats
        if "datasets" in formats:
            splits = _splits(
                manifest, "views/datasets/data/", {pool: f"{pool}-" for pool in POOLS}, "views/datasets/data/"
            )
            glob = "views/datasets/data/*.parquet"
        elif "parquet" in formats and manifest.trajectories:
            name = "train" if manifest.request.pools == ("train",) else _MIXED
            splits, glob = _splits(manifest, _PARQUET, {name: ""}, _PARQUET), f"{_PARQUET}*.parquet"
        else:
            splits, glob = (), ""
        return cls(is_export=True, formats=formats, rows_glob=glob if splits else "", splits=splits)

    @classmethod
    def of_view(cls, manifest: Manifest) -> Home:
        """The folder of the `datasets` view."""
        splits = _splits(manifest, _DATA, _BY_POOL, "data/")
        return cls(is_export=False, formats=("datasets",), rows_glob="data/*.parquet" if splits else "", splits=splits)


def write_card(folder: Path, manifest: Manifest, agents: Sequence[AgentRow]) -> ShardFile:
    """Write an export's card: the file as the manifest names it."""
    card = folder / CARD
    card.write_text(render_card(manifest, Home.of_export(manifest), agents), "utf-8")
    return describe(folder, card, 0)


def render_card(manifest: Manifest, home: Home, agents: Sequence[AgentRow] = ()) -> str:
    """The card, Markdown with front matter, for the folder it is to stand in."""
    withheld = [
        (reason, str(count), card_text.WITHHELD.get(reason, "")) for reason, count in sorted(manifest.withheld.items())
    ]
    left_out = card_text.LEFT_OUT.format(
        table=_table(("reason", "records", "why"), withheld) if withheld else "Nothing.",
        quarantined=", ".join(map(str, manifest.quarantined[:50])) or "none",
    )
    head = (
        "day (UTC)",
        "trajectories",
        "teams",
        "agents",
        "top agent's share",
        "shape entropy (bits)",
        "agentic share",
    )
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
    parts = [
        _front_matter(manifest, home),
        _about(manifest, home),
        *([_agents(agents)] if home.is_export else []),
        left_out,
        f"## Diversity\n\n{_table((*head, 'agentic share'), days) if days else 'No trajectories.'}\n",
        _reading(home),
        card_text.VERIFYING if home.is_export else card_text.VERIFYING_ABOVE,
        card_text.LICENCE,
    ]
    return "\n".join(parts)


def _splits(manifest: Manifest, folder: str, begins: Mapping[str, str], shown_as: str) -> tuple[Split, ...]:
    """The splits whose files lie in `folder` of the export, by how their names begin; `shown_as`: from the card."""
    splits = []
    for name, begin in begins.items():
        if files := [file for file in manifest.files if file.path.startswith(f"{folder}{begin}")]:
            rows, size_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
            splits.append(Split(name, f"{shown_as}{begin}*.parquet", rows, size_bytes))
    return tuple(splits)


def _front_matter(manifest: Manifest, home: Home) -> str:
    size = next((name for limit, name in _SIZES if manifest.trajectories < limit), "n>1M")
    lines = ["---", "pretty_name: Agent arena trajectories", "license: other", "license_name: see-the-card"]
    lines += ["language:", "- en", "task_categories:", "- text-generation", "tags:", "- agents", "- tool-use"]
    lines += ["- trajectories", "- shopping", "size_categories:", f"- {size}"]
    if home.splits:
        lines += ["dataset_info:", "- config_name: default", "  features:"]
        has_objects = manifest.request.arguments is not msgspec.UNSET
        for name, kind in column_types(manifest.version).items():
            lines += feature_lines(name, kind, has_argument_objects=has_objects)
        lines.append("  splits:")
        for split in home.splits:
            size = f"    num_bytes: {split.size_bytes}"
            lines += [f"  - name: {split.name}", size, f"    num_examples: {split.rows}"]
        lines += ["configs:", "- config_name: default", "  data_files:"]
        for split in home.splits:
            lines += [f"  - split: {split.name}", f"    path: {split.glob}"]
    return "\n".join([*lines, "---", ""])


def _about(manifest: Manifest, home: Home) -> str:
    log, request = manifest.log, manifest.request
    splits = ", ".join(f"{split.name} ({split.rows})" for split in home.splits)
    facts = [
        ("validator", f"`{log.validator}`"),
        ("records of its log", f"{log.first_seq} to {log.last_seq}"),
        ("trajectories", str(manifest.trajectories)),
        ("splits", splits or "none"),
        ("policies", _names(manifest.policies)),
        ("partitions", _names(manifest.partitions)),
        ("races", _names(manifest.races)),
        ("pools asked for", ", ".join(request.pools)),
        ("with credentials removed", str(manifest.scrubbed)),
        ("anchored at block", str(log.anchor_block) if log.anchor_block else "not anchored"),
        ("made by", f"`{manifest.software}`, layout version {manifest.version}"),
    ]
    return card_text.ABOUT.format(table=_table(("what", "value"), facts))


def _agents(agents: Sequence[AgentRow]) -> str:
    shown = sorted(agents, key=lambda row: (-row.trajectories, row.agent_version_id))[:_AGENTS_SHOWN]
    rows = [
        (
            "".join(f"\\{sign}" if sign in _MARKS else sign for sign in row.name or "unknown" if sign.isprintable()),
            f"`{row.agent_version_id[:12]}`",
            f"`{row.miner_hotkey}`" if row.miner_hotkey else "none: a control",
            str(row.trajectories),
            card_text.SOURCE[row.source].format(file=row.file, ends=(row.embargo_ends or "")[:16].replace("T", " ")),
        )
        for row in shown
    ]
    table = _table(("name", "version", "miner", "trajectories", "source"), rows) if rows else "None."
    more = f"\n\n{len(agents) - len(shown)} more are in `{AGENTS}`." if len(agents) > len(shown) else ""
    return card_text.AGENTS.format(table=table + more)


def _reading(home: Home) -> str:
    """How to read what is there, and nothing else."""
    parts = [card_text.READING.format(layout=LAYOUT if home.is_export else f"../../{LAYOUT}")]
    if home.splits:
        names = [split.name for split in home.splits]
        split = "train" if "train" in names else names[0]
        parts.append(card_text.WITH_DATASETS.format(split=split))
        parts.append(card_text.WITH_TABLES.format(glob=home.rows_glob))
        parts.append(card_text.TABLE.format(glob=home.rows_glob))
    if home.is_export:
        parts += [card_text.WITH[name] for name in home.formats if name in card_text.WITH]
        if not home.splits:
            parts.append(card_text.WITHOUT_TABLES)
    return "\n".join(parts)


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
