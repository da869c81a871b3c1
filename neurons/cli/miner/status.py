"""`arena status` and `arena versions`: where a hotkey's submissions stand, by what each validator's door says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import ArenaError
from neurons.cli.miner.doors import (
    Config,
    Netuid,
    StateDir,
    Urls,
    WalletHotkey,
    WalletName,
    failure_row,
    open_session,
    read_settings,
)
from neurons.cli.options import JsonOption, NetworkOption, WalletPathOption
from neurons.cli.presenter import badge, printable, share_text, show

if TYPE_CHECKING:
    from pathlib import Path

    from arena.door.status import RaceStatus, SubmissionStatus
    from neurons.node.settings import Settings

app = typer.Typer()

WATCH_S = 3.0
SENTENCES_SHOWN = 3
_COLOURS = {
    "waiting": "cyan",
    "withdrawn": "yellow",
    "refused": "red",
    "rejected": "red",
    "review": "yellow",
    "accepted": "green",
    "qualified": "green",
    "unqualified": "red",
}
_ENDED = frozenset({"withdrawn", "refused", "rejected", "unqualified"})


@app.command()
def status(
    url: Urls = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and print what changes.")] = False,
    wallet_name: WalletName = "",
    wallet_hotkey: WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: Netuid = "",
    network: NetworkOption = "",
    state_dir: StateDir = "",
    config: Config = None,
    as_json: JsonOption = False,
) -> None:
    """Show where submissions stand.

    Asks the validators that the chain names, or those at --url, in requests signed by the hotkey. For each version:
    gate and findings, qualifying, races with rank and score once they are settled, what the judge said once their
    problems are released, from which block the next commitment is allowed, and what to do. With --watch until nothing
    can change any more.
    """
    settings = _settings(config, wallet_name, wallet_hotkey, wallet_path, netuid, network, state_dir)
    asyncio.run(_watch(settings, url or [], is_staying=watch, as_json=as_json))


@app.command()
def versions(
    url: Urls = None,
    wallet_name: WalletName = "",
    wallet_hotkey: WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: Netuid = "",
    network: NetworkOption = "",
    state_dir: StateDir = "",
    config: Config = None,
    as_json: JsonOption = False,
) -> None:
    """List a hotkey's submitted versions, the newest first.

    One line a version: name, version id, the block of its commitment, and its state with each validator.
    """
    settings = _settings(config, wallet_name, wallet_hotkey, wallet_path, netuid, network, state_dir)
    answer = asyncio.run(_read(settings, url or []))
    rows: dict[str, dict[str, Any]] = {}
    for door in answer["validators"]:
        for told in door["submissions"]:
            row = {"name": told.name, "commitment_block": told.commitment_block, "states": {}}
            rows.setdefault(told.agent_version_id, row)["states"][door["validator"]] = told.state
    lines = []
    for agent, row in rows.items():
        states = ", ".join(sorted(set(row["states"].values())))
        lines.append(f"{agent[:16]}  {row['name']:<20}  block {row['commitment_block']}  {states}")
    show(
        [{"agent_version_id": agent} | row for agent, row in rows.items()],
        lines or ["nothing submitted; next: arena submit AGENT.py"],
        as_json=as_json,
    )


def _settings(
    config: Path | None,
    wallet_name: str,
    wallet_hotkey: str,
    wallet_path: str,
    netuid: str,
    network: str,
    state_dir: str,
) -> Settings:
    return read_settings(
        config,
        wallet_name=wallet_name,
        wallet_hotkey=wallet_hotkey,
        wallet_path=wallet_path,
        netuid=netuid,
        network=network,
        state_dir=state_dir,
    )


async def _watch(settings: Settings, urls: list[str], *, is_staying: bool, as_json: bool) -> None:
    shown: list[str] = []
    while True:
        answer = await _read(settings, urls)
        lines = list(status_lines(answer))
        if not shown or lines[2:] != shown[2:]:  # the first two name the block, which always grows
            show(answer, lines, as_json=as_json)
            shown = lines
        told = [each for door in answer["validators"] for each in door["submissions"][:1]]
        if not is_staying or (told and all(each.state in _ENDED for each in told)):
            return
        await asyncio.sleep(WATCH_S)


async def _read(settings: Settings, urls: list[str]) -> dict[str, Any]:
    async with open_session(settings) as session:
        metagraph = await session.chain.metagraph()
        hotkey = session.signer.hotkey
        doors = await session.doors(urls, metagraph)
        validators, failed = [], [failure_row(door) for door in doors if door.failure is not None]
        for door in doors:
            if door.state is None:
                continue
            try:
                told = await session.client.statuses(door.url, door.validator)
                validators.append({"url": door.url, "validator": door.validator, "submissions": told})
            except ArenaError as error:
                code, detail = error.failure.code, error.failure.detail
                failed.append({"url": door.url, "validator": door.validator, "code": code, "detail": detail})
        return {
            "hotkey": hotkey,
            "network": settings.network,
            "netuid": settings.netuid,
            "uid": metagraph.uid_of(hotkey),
            "block": await session.chain.block(),
            "finalized_block": await session.chain.finalized_block(),
            "commitment": await session.chain.commitment(hotkey),
            "validators": validators,
            "failed": failed,
        }


def status_lines(answer: dict[str, Any]) -> Iterator[str]:
    """What `arena status` says to a person, given the answer that `--json` prints."""
    uid = "not registered" if answer["uid"] is None else f"uid {answer['uid']}"
    held = answer["commitment"]
    committed = "no commitment" if held is None else f"commitment {held.sha256[:16]} of block {held.block}"
    yield f"{answer['hotkey']}  {uid} on {answer['network']} {answer['netuid']}"
    yield f"block {answer['block']}, finalized {answer['finalized_block']}  {committed}"
    for door in answer["validators"]:
        yield f"validator {door['validator']} at {door['url']}"
        for told in door["submissions"]:
            yield from _submission_lines(told)
        if not door["submissions"]:
            yield "  knows no submission of this hotkey; next: arena submit AGENT.py"
    for row in answer["failed"]:
        yield f"{row['url']} did not answer: {row['code']} {row['detail']}"


def _submission_lines(told: SubmissionStatus) -> Iterator[str]:
    yield f"  {badge(told.state, _COLOURS[told.state], 11)}  {printable(told.name)}  {told.agent_version_id[:16]}"
    if told.failure is not None:
        yield f"    {told.failure.code} {printable(told.failure.detail)}".rstrip()
    for found in told.findings:
        yield f"    {printable(str(found))}"
    if told.qualifying is not None:
        known = told.qualifying
        score = f", score {share_text(known.score_e4)}" if known.score_e4 is not None else ""
        yield f"    qualifying: {known.done} of {known.total} problems{score}, needed {share_text(known.needed_e4)}"
    if told.agreed is not None:
        agreed = told.agreed
        ended = "it races" if agreed.is_racing else "it does not race"
        if agreed.state == "cooldown":
            ended += f": committed too early, submit again from block {agreed.allowed_block}"
        rejected = f", rejected by {agreed.rejects}" if agreed.rejects else ""
        suite = f"suite passed by {agreed.suite_passes} of {agreed.suite_finished} that finished it"
        needed = f"needed: {agreed.needed} and {agreed.suite_needed}"
        yield f"    at the last close: {ended}"
        yield f"    gate passed by {agreed.accepts} of {agreed.speakers} validators{rejected}; {suite} ({needed})"
    for race in told.races:
        yield f"    {printable(_race_line(race))}"
    for judged in told.judged[:SENTENCES_SHOWN]:
        said = printable(" ".join(judged.sentences))
        yield f"    judge on {judged.problem_id}: {share_text(judged.quality_e4)} {said}"
    if len(told.judged) > SENTENCES_SHOWN:
        yield f"    and {len(told.judged) - SENTENCES_SHOWN} problems more (--json)"
    if told.held_until_block:
        yield f"    undecided, it counts as accepted from block {told.held_until_block}"
    left = told.next_allowed_block - told.block
    wait = f"in {left} blocks" if left > 0 else "now"
    yield f"    committed in block {told.commitment_block}, next from block {told.next_allowed_block} ({wait})"
    yield f"    to do: {printable(told.what_to_do)}"


def _race_line(race: RaceStatus) -> str:
    from datetime import UTC, datetime

    if race.stage == "upcoming":
        try:
            closes = f"{datetime.fromtimestamp(race.closes_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
        except (ValueError, OverflowError, OSError):  # a number that no calendar has: a door may say anything
            closes = f"at {race.closes_ms} ms"
        return f"{race.race_id} closes {closes}"
    if race.stage == "racing":
        return f"{race.race_id} running: {race.done} of {race.total} episodes here, {race.agents} agents"
    if race.stage == "cancelled":
        return f"{race.race_id} cancelled: {printable(race.reason)}"
    if race.rank is None or race.score_e4 is None or race.low_e4 is None or race.high_e4 is None:
        return f"{race.race_id} settled without a score of this agent"
    top = ", at the top" if race.is_top else ""
    interval = f"{share_text(race.low_e4)} to {share_text(race.high_e4)}"
    return f"{race.race_id}: rank {race.rank} of {race.agents}{top}, score {share_text(race.score_e4)} ({interval})"
