"""`arena records costs`: what the model endpoints were asked for, and what that cost."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from arena.store.port import UsageTotal
from neurons.cli.options import DsnOption, JsonOutOption, StateDirOption
from neurons.cli.presenter import echo_json, make_table
from neurons.cli.store_reading import run_on_store

_MICRO = 1_000_000
_GROUP_CHARS = 16
_NUMBERS = ("episodes", "requests", "attempts", "probes", "prompt_tokens", "completion_tokens", "latency_ms")


class Grouping(StrEnum):
    """What the sums are of."""

    RACE = "race"
    AGENT = "agent"
    MODEL = "model"
    ENDPOINT = "endpoint"


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one group. `cost_micro_usd` is of what has a known price; `unpriced` counts requests without one."""

    group: str
    episodes: int = 0
    requests: int = 0
    attempts: int = 0
    probes: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: int = 0
    cost_micro_usd: int = 0
    unpriced: int = 0


def costs(
    by: Annotated[Grouping, typer.Option(help="One row for each of these.")] = Grouping.RACE,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    as_json: JsonOutOption = False,
) -> None:
    """Show what model endpoints were asked for and what it cost, faulted attempts included.

    Tokens are the endpoints' own counts; prices stand with the tables `upstreams` of the settings file, and a
    request without a price is counted apart, never as free. A request that no endpoint answered stands under "none".
    """
    from rich.console import Console

    rows = sum_costs(run_on_store(dsn, state_dir, lambda store: store.usage_totals()), by)
    if as_json:
        echo_json(rows)
        return
    if not rows:
        typer.echo("no model was asked for anything yet")
        return
    headings = ("episodes", "requests", "tokens in", "tokens out", "s each", "USD", "no price")
    table = make_table(by.value, *headings, right=headings, box=None, pad_edge=False)
    for row in rows:
        seconds = row.latency_ms / 1_000 / max(1, row.requests)
        dollars = "?" if row.unpriced == row.requests else f"{row.cost_micro_usd / _MICRO:,.4f}"
        counts = (row.episodes, row.requests, row.prompt_tokens, row.completion_tokens)
        group = row.group[:_GROUP_CHARS]  # enough to find it with `arena records show`
        table.add_row(group, *(f"{count:,}" for count in counts), f"{seconds:.2f}", dollars, f"{row.unpriced:,}")
    Console().print(table)


def sum_costs(totals: Iterable[UsageTotal], by: Grouping) -> tuple[CostRow, ...]:
    """The totals summed by group, in the order in which the groups come. Episodes are attempts at an endpoint with a
    model: one that used two models counts in both."""
    rows: dict[str, CostRow] = {}
    for one in totals:
        group = {
            Grouping.RACE: one.race_id or one.stage,
            Grouping.AGENT: one.agent_version_id,
            Grouping.MODEL: one.model,
            Grouping.ENDPOINT: one.upstream or "none",
        }[by]
        row = rows.get(group, CostRow(group=group))
        rows[group] = CostRow(
            group=group,
            cost_micro_usd=row.cost_micro_usd + (one.cost_micro_usd or 0),
            unpriced=row.unpriced + (one.requests if one.cost_micro_usd is None else 0),
            **{name: getattr(row, name) + getattr(one, name) for name in _NUMBERS},
        )
    return tuple(rows.values())
