"""`arena submit`, `status`, `withdraw` and `winner`: a miner's agent to the validators, and back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from arena.chain.keys import HttpAuth
from arena.chain.port import LOCAL_NETWORK, Metagraph, Signer, Subtensor, is_local
from arena.race.admission import asked_count
from arena.race.draw import permitted_validators
from arena.race.weights import evidence_text
from arena.records.log import agent_version_id
from arena.store.location import read_location
from arena.submissions.submission import SignedSubmission
from foundation.canonical import text_hash
from foundation.codes import PEER_AWAY, Owner
from foundation.durable_files import write_whole
from foundation.errors import ArenaError, counted, printable
from neurons.cli.agent import WIDTH, AgentFile, read_agent, require_accepted, source_of
from neurons.cli.options import KeyFlags, NetworkOption, PolicyOption, command, settings_of
from neurons.cli.presenter import EXIT_FAILED, EXIT_INTERRUPTED, badge, refuse, share_text, show
from neurons.health.status import moment

if TYPE_CHECKING:
    from arena.door.answers import OwnRace, RacedProblem, SubmissionStatus
    from arena.door.client import DoorAnswer, DoorClient
    from arena.policy import Policy
    from neurons.settings.settings import Settings

app = typer.Typer()

FINAL_PAUSE_S = 0.5
WATCH_S = 3.0
_AGAIN = "the same line again goes on from there"
PROBLEMS_SHOWN, SENTENCES_SHOWN = 30, 2  # of the newest version
_NO_LOSS_E4 = 8_000  # the judge's quality from which on nothing is lost
_COLOURS = {"waiting": "cyan", "accepted": "green", "qualified": "green", "withdrawn": "yellow", "review": "yellow"}
_ENDED = frozenset({"withdrawn", "refused", "rejected", "unqualified"})

_Register = Annotated[bool, typer.Option("--register", help="Register the hotkey first (local network only).")]


@dataclass(frozen=True)
class ChainFlags:
    """Which validators are asked, over which network."""

    url: Annotated[
        list[str] | None,
        typer.Option(help="A door, http://host:port. Default: those on chain."),
    ] = None
    netuid: Annotated[str, typer.Option(help="The subnet.", metavar="INTEGER")] = ""
    network: NetworkOption = ""
    state_dir: Annotated[str, typer.Option(help="With network local: the validator's folder with the chain.")] = ""
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None

    def settings(self, **more: str | None) -> Settings:
        """The settings under these flags. Raises ArenaError V2030."""
        flags = {"netuid": self.netuid, "network": self.network, "state_dir": self.state_dir}
        return settings_of({**flags, **more}, self.config)


@dataclass(frozen=True)
class MinerSession:
    """A hotkey, its chain, and a client for doors."""

    settings: Settings
    signer: Signer
    chain: Subtensor
    client: DoorClient
    urls: Sequence[str]

    async def doors(self, metagraph: Metagraph, *, is_registered: bool = True) -> list[DoorAnswer]:
        """The doors with what they tell of the hotkey's submissions (to a registered one), and those that can't be
        asked, with their reasons. Raises ArenaError U3052 for none."""
        from arena.door.client import find_doors, read_statuses

        found = await find_doors(self.client, metagraph, self.urls)
        if not any(door.state for door in found):
            raise _no_door(found, "none publishes an address on chain", self.settings)
        return await read_statuses(self.client, found) if is_registered else found

    async def register(self, *, is_known: bool = False) -> None:
        """Register the hotkey, unless it `is_known`; wait until validators see it. Raises ArenaError U3030, U3031."""
        registered = None if is_known else await self.chain.register(self.signer)
        if registered and registered.status != "ok":
            raise ArenaError("U3031", registered.detail)
        typer.echo("· registered; waiting about 25 s until that is final: validators use final blocks only", err=True)
        while not await self.is_seen():
            await asyncio.sleep(FINAL_PAUSE_S)

    async def is_seen(self) -> bool:
        """Whether the hotkey is registered at the final block, which validators go by. Raises ArenaError U3030."""
        return (await self.chain.metagraph(await self.chain.finalized_block())).uid_of(self.signer.hotkey) is not None

    async def commit(self, name: str, source: str, *, is_anew: bool = False) -> tuple[SignedSubmission, dict[str, Any]]:
        """Commit to a source: what is handed in afterwards, and what to say of it. Raises ArenaError A1008, A1010,
        U3030, U3031."""
        from arena.submissions.submission import commit
        from neurons.settings.inputs import unix_ms

        made, block = await commit(self.signer, name, source, subtensor=self.chain, now_ms=unix_ms(), is_anew=is_anew)
        names = ("agent_version_id", "agent_sha256", "commitment_sha256", "hotkey")
        row = {name: getattr(made, name) for name in names}
        return made, row | {"commitment_block": block, "network": self.settings.network}


def open_chain(settings: Settings) -> Subtensor:
    """The chain that a miner's command reads: a local one that its validator made, since a miner makes none. Raises
    ArenaError V2030, U3030."""
    from arena.chain.opening import local_chain_path
    from neurons.settings.inputs import chain_of

    path = local_chain_path(settings.state_dir)
    if settings.network == LOCAL_NETWORK and not os.access(path, os.W_OK):
        fix = "give --state-dir of its validator, or --subtensor.network http://HOST:PORT of its --local-chain-port"
        folder = settings.state_dir
        whose = "another user's" if os.access(folder, os.F_OK) and not os.access(folder, os.W_OK) else "no"
        raise ArenaError("U3030", f"{whose} local chain in {folder}", fix=fix)
    return chain_of(settings)


@contextlib.asynccontextmanager
async def open_session(settings: Settings, urls: Sequence[str] | None) -> AsyncIterator[MinerSession]:
    """The session of the settings' hotkey. Raises ArenaError V2030, U3030."""
    from arena.door.client import DoorClient
    from neurons.settings.inputs import signer_of

    signer, chain = signer_of(settings), open_chain(settings)
    async with DoorClient(HttpAuth(signer, time.time_ns)) as client:
        yield MinerSession(settings, signer, chain, client, urls or ())


@command(app)
async def submit(
    agent: AgentFile,
    key: KeyFlags,
    chain: ChainFlags,
    name: Annotated[str, typer.Option(help="Name shown beside the agent; else the file's.")] = "",
    register: _Register = False,
    policy: PolicyOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; needed without a terminal.")] = False,
) -> None:
    """Sign an agent file and submit it.

    arena submit my_agent/agent.py --policy demo --wallet.hotkey //Charlie --state-dir node

    First the gate's rules on form and names are checked here, so that a typing mistake costs nothing (`arena check`
    also knows the catalogue), and validators are looked for: on chain, or at --url. It says what it will do and what
    that costs, and asks. Then sha256(hotkey, source) is committed on chain, and only then the source is handed in, to
    as many validators as are to qualify it. The others fetch it from those. Doing it again with the same file is safe.
    Exit code 1 when the gate would reject it or the hotkey may not submit, 3 when wallet, chain or validators are not
    there.
    """
    from arena.door.client import deliver, would_take
    from neurons.settings.inputs import policy_of

    settings = chain.settings(**vars(key), policy=policy)
    (source, review), rules = _checked_source(settings, agent), policy_of(settings)
    stands = "nothing was sent"
    try:
        async with open_session(settings, chain.url) as session:
            metagraph, hotkey = await session.chain.metagraph(), session.signer.hotkey
            is_known, is_seen = metagraph.uid_of(hotkey) is not None, await session.is_seen()
            if not register and not is_known:
                place, netuid = settings.network, settings.netuid
                how = "--register" if is_local(place) else f"btcli subnets register --netuid {netuid}"
                detail = f"hotkey {hotkey} is not registered on {place} {netuid}"
                raise ArenaError("A1008", detail, fix=f"register it: {how}")
            version, block = agent_version_id(hotkey, text_hash(source)), await session.chain.block() + 1
            found = await session.doors(metagraph, is_registered=is_seen)
            doors = [would_take(door, version, block) for door in found]
            if all(door.failure for door in doors):  # before anything is committed
                raise _first_failure(doors)
            wanted = asked_count(rules, len(permitted_validators(metagraph)))
            is_old = any(each.agent_version_id == version for door in found for each in door.submissions)
            whose = f"{agent}, as {hotkey} on {settings.network} {settings.netuid}:"
            plan = _plan_lines(rules, doors, wanted, is_new=not is_known, is_old=is_old)
            _confirm([whose, *plan], yes=yes)
            if not is_seen:
                stands = "the hotkey may be registered; nothing is committed"
                await session.register(is_known=is_known)
            stands = f"the commitment may stand on chain, the file is not handed in; {_AGAIN}"
            submission, row = await session.commit(name or agent.stem, source)
            typer.echo(f"· committed in block {row['commitment_block']}; handing in", err=True)
            stands = f"committed in block {row['commitment_block']}, the file may be handed in; {_AGAIN}"
            said = await deliver(session.client, submission, doors, wanted)
            stands = "the file is handed in: arena status"
    except asyncio.CancelledError:  # Ctrl-C
        raise refuse(f"stopped: {stands}", EXIT_INTERRUPTED) from None
    taken = [each.taken for each in said if each.taken is not None]
    if not taken:
        raise _first_failure(said) if said else _no_door(doors, "none is left to ask", settings)
    answer: dict[str, Any] = {
        "name": name or agent.stem,
        **row,
        "state": taken[0].state,
        "next_allowed_block": max(each.next_allowed_block for each in taken),
        "taken_by": [{"validator": each.validator, "url": each.url} for each in said if each.taken is not None],
        "failed": _failure_rows([*said, *doors]),
        "review": review,
    }
    lines = [
        f"{_badge(taken[0].state)}  {answer['name']}  version {answer['agent_version_id'][:16]}",
        f"committed {answer['commitment_sha256'][:16]} in block {answer['commitment_block']} by {hotkey}",
        *(f"taken by {each['validator']} at {each['url']}" for each in answer["taken_by"]),
        *_failure_lines(answer),
        *(f"note: {each}; a person will look" for each in review),
        f"You may submit again from block {answer['next_allowed_block']}; final now: {taken[0].block}.",
        "next: arena status --watch, with the same flags except --policy and --register: each step as it comes",
    ]
    show(answer, lines)


@command(app)
async def commit(
    agent: AgentFile,
    key: KeyFlags,
    chain: ChainFlags,
    again: Annotated[bool, typer.Option("--again", help="Commit anew where this one stands.")] = False,
    register: _Register = False,
    policy: PolicyOption = None,
) -> None:
    """Commit to an agent file on chain; hand nothing in.

    The first half of `arena submit`: the same checks, then sha256(hotkey, source). Clients of the published SN15 API
    sign no file, so a validator that speaks it takes from them only what was committed before: first this command, then
    `oro submit --base-url http://VALIDATOR ...` with the same wallet and file. Change the file and commit again.
    """
    settings = chain.settings(**vars(key), policy=policy)
    source, review = _checked_source(settings, agent)
    async with open_session(settings, None) as session:
        if register:
            await session.register()
        _, answer = await session.commit("committed", source, is_anew=again)
    lines = [
        f"{badge('committed', 'cyan', 9)}  {answer['commitment_sha256'][:16]} in block {answer['commitment_block']}"
        f" by {answer['hotkey']}",
        *(f"note: {found}; a person will look" for found in review),
        "next: arena submit with the same file, or oro submit to a validator that speaks the SN15 API",
    ]
    show(answer | {"review": review}, lines)


@command(app)
async def status(
    key: KeyFlags,
    chain: ChainFlags,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and print what changes.")] = False,
) -> None:
    """Show where submissions stand.

    Asks the validators that the chain names, or those at --url, in requests signed by the hotkey. For each version:
    gate and findings, qualifying, races with rank and score once they are settled, what the judge said once their
    problems are released, from which block the next commitment is allowed, and what to do. With --watch until nothing
    can change any more.
    """
    settings, shown = chain.settings(**vars(key)), list[str]()
    while True:
        async with open_session(settings, chain.url) as session:
            metagraph, hotkey = await session.chain.metagraph(), session.signer.hotkey
            doors = await session.doors(metagraph)
            answer = {
                "hotkey": hotkey,
                "network": settings.network,
                "netuid": settings.netuid,
                "uid": metagraph.uid_of(hotkey),
                "block": await session.chain.block(),
                "finalized_block": await session.chain.finalized_block(),
                "commitment": await session.chain.commitment(hotkey),
                "validators": [
                    {
                        "url": door.url,
                        "validator": door.validator,
                        "submissions": door.submissions,
                        "view": _how_to_view(settings, door),
                    }
                    for door in doors
                    if door.failure is None
                ],
                "failed": _failure_rows(doors),
            }
        lines = list(status_lines(answer))
        if not shown or lines[2:] != shown[2:]:  # the first two name the block, which always grows
            show(answer, lines)
            shown = lines
        told = [each for door in doors if door.failure is None for each in door.submissions[:1]]
        if not watch or (told and all(each.state in _ENDED for each in told)):
            return
        await asyncio.sleep(WATCH_S)


@command(app)
async def withdraw(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Agent version id, or the beginning of one.")],
    key: KeyFlags,
    chain: ChainFlags,
) -> None:
    """Take a submitted version back that waits for the gate.

    It is dropped by the validators that have it and costs no cooldown. What a gate has looked at stays. Exit code 1
    where no validator dropped it.
    """
    async with open_session(chain.settings(**vars(key)), chain.url) as session:
        having: dict[str, list[DoorAnswer]] = {}
        for door in await session.doors(await session.chain.metagraph()):
            for each in door.submissions:
                if each.agent_version_id.startswith(version):
                    having.setdefault(each.agent_version_id, []).append(door)
        if len(having) != 1:
            raise typer.BadParameter(f"{len(having)} versions of this hotkey begin with {version!r}: arena status")
        ((agent, having_it),) = having.items()
        dropped, kept = [], []
        for door in having_it:
            try:
                await session.client.withdraw(door.url, door.validator, agent)
                dropped.append(door.validator)
            except ArenaError as error:
                kept.append(msgspec.structs.replace(door, failure=error.failure))
    if not dropped:
        raise _first_failure(kept)
    answer = {"agent_version_id": agent, "withdrawn_from": dropped, "failed": _failure_rows(kept)}
    show(answer, [*(f"version {agent[:16]} is withdrawn from {each}" for each in dropped), *_failure_lines(answer)])


@command(app)
async def winner(
    chain: ChainFlags,
    out: Annotated[Path | None, typer.Option(help="File to write; else AGENT_VERSION.py here.")] = None,
) -> None:
    """Fetch the file of the agent at the top, once it is public.

    Asks a validator that the chain names, or the one at --url, for its latest settled race; no wallet is needed. The
    file is written if its hash is the one that was committed for that agent version. Until the embargo of the race
    is over exit code 3 says from when on it can be read.
    """
    from arena.door.client import DoorClient, at_port, find_doors

    settings = chain.settings()
    async with DoorClient() as client:
        doors = await find_doors(client, await open_chain(settings).metagraph(), chain.url or ())
        reads = [at_port(one.url, one.state.reads_port) for one in doors if one.state and one.state.reads_port]
        if not reads:
            raise _no_door(doors, "none serves public reads: its operator starts it with --serve-port", settings)
        found, source = await client.winner(reads[0])
    agent, race = found.agent, found.races[-1]
    path = out or Path(f"{agent.agent_version_id[:16]}.py")
    write_whole(path, source)
    answer: dict[str, Any] = {
        "race_id": race.race_id,
        "agent_version_id": agent.agent_version_id,
        "name": agent.name,
        "miner_hotkey": agent.miner_hotkey,
        "score_e4": race.standing.race_score_e4,
        "file": str(path),
    }
    scored = f"{race.race_id} with {share_text(race.standing.race_score_e4)}"
    lines = [
        f"{printable(agent.name)} by {agent.miner_hotkey} is at the top after {scored}",
        f"its file: {path} ({len(source)} bytes, sha256 {agent.agent_sha256[:16]})",
    ]
    show(answer, lines)


# -- submitting
def _plan_lines(
    rules: Policy, doors: Sequence[DoorAnswer], wanted: int, *, is_new: bool, is_old: bool
) -> Iterator[str]:
    """What `submit` will do, and what it costs. `is_new`: the hotkey is not registered; `is_old`: this is known."""
    if is_new:
        yield "  register the hotkey (free on a local network)"
    open_doors = [f"{door.validator[:8]} at {door.url}" for door in doors if door.failure is None]
    asked = "" if len(open_doors) <= wanted else f" {wanted} of"
    yield f"  commit to its hash on chain, then hand the file in to{asked} {', '.join(open_doors)}"
    if is_old:
        yield "  cost: nothing; they have this file already"
        return
    if rules.name not in {door.state.policy for door in doors if door.state}:
        named = ", ".join({door.state.policy: "" for door in doors if door.state})
        yield f"  note: they race by the rules of {named}, and this was checked by those of {rules.name} (--policy)"
    for said in sorted({door.state.traces_licence for door in doors if door.state}):
        yield f"  traces: {f'published under {printable(said)}' if said else 'published; no terms of use are stated'}"
    yield f"  cost: one commitment (a fee on a real network), the next in {rules.cooldown.accepted_blocks} blocks"


def _confirm(plan: Sequence[str], *, yes: bool) -> None:
    """Say the plan, and ask unless `yes`. Raises typer.Exit for a no, typer.BadParameter where nobody can answer."""
    typer.echo("\n".join(plan), err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nothing was sent: without a terminal, give --yes", param_hint="--yes")
    before, is_meant = signal.signal(signal.SIGINT, signal.default_int_handler), False  # asyncio's would not end it
    try:
        is_meant = typer.confirm("go on?", err=True)
    except typer.Abort:
        typer.echo(err=True)
        raise refuse("stopped: nothing was sent", EXIT_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if not is_meant:
        raise refuse("nothing was sent", EXIT_FAILED)


def _first_failure(doors: Sequence[DoorAnswer]) -> ArenaError:
    """The one that is the miner's to mend, with every validator, else the first."""
    failures = [door.failure for door in doors if door.failure]
    failure = next((each for each in failures if each.owner is Owner.AGENT), failures[0])
    return ArenaError(failure.code, failure.detail)


def _checked_source(settings: Settings, agent: Path) -> tuple[str, list[str]]:
    """The text of an agent file that the gate's rules on form and names let pass, and what a person would look at.

    Shows the report of a rejected one and raises typer.Exit. Raises ArenaError A1009 for a file that can't be read."""
    from arena.gate.inspection import inspect_isolated
    from arena.gate.knowledge import make_knowledge
    from neurons.settings.inputs import policy_of

    rules, source = policy_of(settings).gate, read_agent(agent)
    # without a catalogue: every rule but the tables, in a process of its own
    report = inspect_isolated(source, rules, make_knowledge([], [], [], rules))
    require_accepted(agent, source, report)
    return source_of(source), [str(found) for found in report.findings]


# -- status
def _how_to_view(settings: Settings, door: DoorAnswer) -> str:
    """How a trace of this validator is looked at: by its store, where that is on this machine, else by its pages."""
    from arena.door.client import at_port

    if settings.network == LOCAL_NETWORK and read_location(settings.state_dir) is not None:
        return f"arena view NUMBER --state-dir {settings.state_dir}"
    if door.state is None or not door.state.reads_port:
        return ""
    return f"{at_port(door.url, door.state.reads_port)}/traces/{door.validator}/NUMBER"


def status_lines(answer: dict[str, Any]) -> Iterator[str]:
    """What `arena status` says to a person, given the answer that `--json` prints."""
    uid = "not registered (arena submit --register)" if answer["uid"] is None else f"uid {answer['uid']}"
    held = answer["commitment"]
    committed = "no commitment" if held is None else f"commitment {held.sha256[:16]} of block {held.block}"
    yield f"{answer['hotkey']}  {uid} on {answer['network']} {answer['netuid']}"
    yield f"block {answer['block']}, finalized {answer['finalized_block']}  {committed}"
    for door in answer["validators"]:
        yield f"validator {door['validator']} at {door['url']}"
        for number, told in enumerate(door["submissions"]):
            yield from _submission_lines(told, door["view"], PROBLEMS_SHOWN if number == 0 else 0)
        if not door["submissions"]:
            yield "  knows no submission of this hotkey; next: arena submit AGENT.py"
    yield from _failure_lines(answer)


def _wrapped(text: str, indent: int) -> Iterator[str]:
    spaces = " " * indent
    yield from textwrap.wrap(printable(text), WIDTH, initial_indent=spaces, subsequent_indent=f"{spaces}    ")


def _badge(state: str, width: int = 9) -> str:
    return badge(state, _COLOURS.get(state, "red"), width)


def _submission_lines(told: SubmissionStatus, view: str, problems: int) -> Iterator[str]:
    """One version, with so many of its lost problems. `view`: how to look at a record of this validator, or ""."""
    yield f"  {_badge(told.state, 11)}  {printable(told.name)}  {told.agent_version_id[:16]}"
    if told.failure is not None:
        yield f"    {told.failure.code} {printable(told.failure.detail)}".rstrip()
    for found in told.findings:
        yield f"    {printable(str(found))}"
    if told.qualifying is not None:
        known = told.qualifying
        score = f", mean {share_text(known.score_e4)}" if known.score_e4 is not None else ""
        early = " (its end was certain)" if told.state != "accepted" and known.done < known.total else ""
        needed = f"a mean of {share_text(known.needed_e4)} is needed"
        yield f"    qualifying: {known.done} of {known.total} done{early}{score}; {needed}"
    if told.agreed is not None:
        agreed = told.agreed
        ended = "it races" if agreed.is_racing else "it does not race"
        if agreed.state == "accepted" and agreed.suite_needed <= agreed.suite_passes and not agreed.is_racing:
            ended += ": no seat was left, or another version of the hotkey races"
        if agreed.state == "cooldown":
            ended += f": committed too early, submit again from block {agreed.allowed_block}"
        yield f"    at the last close: {ended}"
        if agreed.speakers > 1 or agreed.rejects or agreed.suite_passes < agreed.suite_needed:
            rejected = f", rejected by {agreed.rejects}" if agreed.rejects else ""
            suite = f"suite passed by {agreed.suite_passes} of {agreed.suite_finished} that finished it"
            needed = f"needed: {agreed.needed} and {agreed.suite_needed}"
            yield f"    gate passed by {agreed.accepts} of {agreed.speakers} validators{rejected}; {suite} ({needed})"
    for race in told.races:
        for number, line in enumerate(_race_lines(race)):
            yield from _wrapped(line, 4 + 2 * (number > 0))
    yield from _problem_lines(told.problems, view, problems)
    if told.held_until_block:
        yield f"    undecided, it counts as accepted from block {told.held_until_block}"
    again = "now" if told.block >= told.next_allowed_block else f"from block {told.next_allowed_block}"
    yield f"    committed in block {told.commitment_block}; the next version: {again}"
    yield f"    to do: {printable(told.what_to_do)}"


def _problem_lines(problems: Sequence[RacedProblem], view: str, most: int) -> Iterator[str]:
    """The lost problems of the newest released race, each with its reason; then, of the solved, what cost points."""
    lost = [one for one in problems if not one.is_solved]
    poor = [one for one in problems if one.is_solved and one.quality_e4 is not None and one.quality_e4 < _NO_LOSS_E4]
    if not problems:
        return
    look = f"; a trace: {view}" if view else ""
    yield from _wrapped(f"{problems[0].race_id} here: {len(problems) - len(lost)} of {len(problems)} solved{look}", 4)
    for one in lost[:most]:
        why = "; ".join(one.missed) or "nothing was recommended"
        yield from _wrapped(f"{one.record:>5} lost {one.problem_id}: {why}", 6)
    for one in poor[: min(most, SENTENCES_SHOWN)]:
        why = f"judged {share_text(one.quality_e4 or 0)}: {' '.join(one.sentences)}"
        yield from _wrapped(f"{one.record:>5} solved {one.problem_id}, {why}", 6)
    if more := max(0, len(lost) - most) + max(0, len(poor) - min(most, SENTENCES_SHOWN)):
        yield f"      {more} more cost points (--json lists all)"


def _race_lines(own: OwnRace) -> Iterator[str]:
    """A race; of a settled one also how the agent did against the one at the top, and what is still wanted."""
    race, stood = own.race, own.stood
    if race.stage == "open":
        yield f"{race.race_id} is open; submissions close {moment(race.closes_ms or 0)}"
    elif race.stage == "cancelled":
        yield f"{race.race_id} cancelled: {own.reason}"
    elif race.moment not in ("settled", "published"):
        yield f"{race.race_id} {race.stage}: {own.done} of {own.total} episodes here, {counted(race.agents, 'agent')}"
    elif stood is None:
        yield f"{race.race_id} settled without a score of this agent"
    if stood is None:
        return
    standing = stood.standing
    is_top = race.top_agent_version_id == standing.agent_version_id
    interval = f"{share_text(standing.low_e4)} to {share_text(standing.high_e4)}"
    top = ", took the top" if is_top and race.is_promotion else ", at the top" if is_top else ""
    place = f"rank {standing.rank} of {race.agents}{top}"
    without = standing.missing + standing.faulted
    missing = f"; {counted(without, 'problem')} without a result" if without else ""
    yield f"{race.race_id}: {place}, score {share_text(standing.race_score_e4)} ({interval}){missing}"
    if own.against and (standing.wins or standing.losses or stood.evidence is not None):
        counts = f"{standing.wins} won, {standing.losses} lost, {stood.ties} alike"
        tie = "a tie: " if standing.wins == standing.losses else ""
        yield f"{tie}problem by problem against {own.against}: {counts}"
    if stood.evidence is not None and stood.evidence_needed and not is_top:
        held = f"evidence {evidence_text(stood.evidence)} of the {stood.evidence_needed} that take the top"
        yield f"{held}: {stood.wins_needed} more problems won, none lost, would do"
    if stood.no_place:
        yield f"no place: {stood.no_place.says(stood.no_place.holder[:16])}"


def _failure_rows(doors: Sequence[DoorAnswer]) -> list[dict[str, str]]:
    return [
        {"url": door.url, "validator": door.validator, "code": door.failure.code, "detail": door.failure.detail}
        for door in doors
        if door.failure
    ]


def _failure_lines(answer: dict[str, Any]) -> list[str]:
    return [f"{row['url']} did not: {row['code']} {row['detail']}" for row in answer["failed"]]


def _no_door(doors: Sequence[DoorAnswer], otherwise: str, settings: Settings) -> ArenaError:
    """No validator can be asked: each with its reason; of a local network, how to start the one that does not run."""
    reasons = "; ".join(f"{row['url']}: {row['code']} {row['detail']}" for row in _failure_rows(doors))
    if settings.network == LOCAL_NETWORK and all(door.failure and door.failure.code == PEER_AWAY for door in doors):
        fix = f"start it: arena validator --state-dir {settings.state_dir}, with its policy and --wallet.hotkey"
        return ArenaError("U3052", f"the local validator does not run ({reasons or otherwise})", fix=fix)
    return ArenaError("U3052", reasons or otherwise)
