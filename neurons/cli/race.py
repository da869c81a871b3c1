"""`arena race`: settled races from records, and settled again; weight vectors.

It presents what `neurons.race.log` finds; a race that is not settled yet shows nothing. The rules are in
`arena/race`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from arena.bank.batch import Disclosure, check_release, read_batch
from arena.race.forecast import day_of, spent
from arena.race.forecast import forecast as predict
from arena.race.settle import differences
from arena.race.weights import UNIT, WeightCase, held_by_hotkey, reference_vector
from arena.records.model import SettlementRecord
from foundation.codes import PEER_LACKS, TAIL_LACKS
from foundation.errors import ArenaError, counted
from neurons.cli.options import StateDirOption, StoreFlags, ValidatorOption, command, logs_of, policy_named, settings_of
from neurons.cli.presenter import EXIT_INTEGRITY, EXIT_USAGE, agent_name, echo_json, refuse, show, table_text
from neurons.health.status import dollars
from neurons.race.sentences import names_of, top_sentence
from problems.titles import encode_accepted

if TYPE_CHECKING:
    from arena.race.admission import RaceRecords
    from arena.race.machine import RaceState
    from arena.records.port import UsageTotal
    from arena.store.postgres import PostgresStore
    from neurons.race.log import SettledRace

leaderboard_app = typer.Typer()
app = typer.Typer(
    help="""Look at races.

    arena race list --state-dir DIR

    arena race show race-000001 --state-dir DIR
    """,
    no_args_is_help=True,
)


_Race = Annotated[str, typer.Argument(metavar="RACE", help="Id of a settled race, as `arena race list` shows it.")]


@command(app, "list")
def list_races(
    store: StoreFlags,
    validator: ValidatorOption = "",
) -> None:
    """List settled races, oldest first: who raced, who is at the top, what was void, and whose settlement is in force.

    Validators that share races need a quorum. own: this validator settled as the quorum did. adopted: it took over what
    the others settled. none: no quorum agreed with this validator's result, or it had none.
    """
    settled, names = store.run(lambda logs: settled_and_named(logs, validator))
    shown = [msgspec.to_builtins(each.settlement) | {"force": each.force} for each in settled]
    if not settled:
        show(shown, ["no race is settled yet; `arena validator status` shows the one that runs"])
        return
    lines = [f"{'race':<12} {'state':<9} {'force':<7} {'agents':>6} {'void':>4}  top"]
    for row, force in [(each.settlement, each.force) for each in settled]:
        top = agent_name(row.top_agent_version_id, names) or "nobody yet"
        counts = f"{len(row.standings):>6} {len(row.void):>4}  {top}{'*' if row.is_promotion else ''}"
        why = f"\n  {row.reason}" if row.reason else ""
        lines.append(f"{row.race_id:<12} {row.state:<9} {force:<7} {counts}{why}")
    show(shown, [*lines, "* promoted by this race"])


@command(leaderboard_app)
def leaderboard(
    state_dir: StateDirOption = None,
    url: Annotated[str, typer.Option(help="Public reads of a validator, http://host:port, instead.")] = "",
) -> None:
    """Show the standings of the latest settled race.

    arena leaderboard --state-dir node

    arena leaderboard --url http://HOST:PORT

    Of a validator on this machine from its state folder, which needs no running one; of any other from its public
    reads (--serve-port) or its door. `arena race show` says more of one race.
    """
    found: SettlementRecord | None
    if url:
        found, names = asyncio.run(_leaderboard_at(url))
    else:
        settled, names = StoreFlags(state_dir=state_dir).run(lambda logs: settled_and_named(logs, ""))
        found = next((each.settlement for each in reversed(settled) if each.settlement.standings), None)
    lines = ["no race is settled yet; `arena validator status` shows the one that runs"]
    if found is not None:
        raced = counted(len(found.drawn) - len(found.void), "problem")
        lines = [f"{found.race_id}, {raced}", *standing_lines(found, names)]
    show({"settlement": found, "names": names if found else {}}, lines)


async def _leaderboard_at(url: str) -> tuple[SettlementRecord | None, dict[str, str]]:
    from arena.door.client import DoorClient, at_port

    async with DoorClient() as client:
        try:
            return await client.leaderboard(url)
        except ArenaError as error:
            if error.failure.code not in (TAIL_LACKS, PEER_LACKS):
                raise
            try:
                at, state = await client.place(url)
            except ArenaError:
                if error.failure.code == PEER_LACKS:
                    raise
                return None, {}  # no door but the reads, and no race is settled
        if not state.reads_port:
            fix = "its operator starts it with --serve-port"
            raise ArenaError("U3052", f"the validator with its door at {at} serves no public reads", fix=fix)
        return await client.leaderboard(at_port(at, state.reads_port))


@command(app, "show")
def show_race(
    race: _Race,
    store: StoreFlags,
    release: Annotated[
        bool, typer.Option("--release", help="Check what its release opened by its commitments.")
    ] = False,
    titles: Annotated[Path | None, typer.Option(help="Also write the titles that its batch accepted here.")] = None,
    validator: ValidatorOption = "",
) -> None:
    """Show one settled race: standings with their intervals, what counted, and its weights.

    Of a settlement that was adopted from other validators it says in what this validator's own differs. With --release
    every cluster commitment is computed again with the salt of the release record, and, where the batch stands in
    STATE_DIR/bank, its problems, answers, pools and hash too: exit code 4 when a commitment was broken. The titles of
    --titles belong as titles-RACE.json beside the index, for everybody to score the batch again, or to train on it.
    """
    settled, names = store.run(lambda logs: settled_and_named(logs, validator))
    found = _of_race([each.settlement for each in settled], race)
    (whole,) = [each for each in settled if each.settlement is found]
    force = []
    if whole.force == "none":
        force = ["in force: nothing, since no quorum settled alike; this is this validator's word"]
    elif whole.force == "adopted":
        own = f"; this validator's own differs in {', '.join(whole.differing)}" if whole.differing else ""
        if whole.differing is None:
            own = "; this validator has none of its own, and its log says what was lacking (`no settlement of ours`)"
        force = [f"in force: this settlement, adopted from the other validators{own}"]
    lines = [
        f"{found.race_id}  {found.state}  {found.reason}".rstrip(),
        *force,
        f"policy {found.policy_sha256[:16]}  blocks {found.closing_block} to {found.settling_block}",
        f"{counted(len(found.drawn), 'problem')} drawn with round {found.beacon_round}, {len(found.void)} void",
    ]
    for log in found.inputs.logs if found.inputs else ():
        lines.append(f"counted: {log.validator} up to record {log.size}, root {log.root[:16]}")
    shown = msgspec.to_builtins(found) | {"force": whole.force, "differing": whole.differing}
    is_kept = True
    if release or titles is not None:
        opened, more = _release(store, race, titles)
        shown["release"], lines = opened, [*lines, *more]
        is_kept = isinstance(opened, str) or opened.is_ok
    show(shown, [*lines, *standing_lines(found, names)], 0 if is_kept else EXIT_INTEGRITY)


@command(app)
def forecast(
    state_dir: StateDirOption = None,
    config: Annotated[Path | None, typer.Option("--config", help="The node's TOML file: prices, caps, folder.")] = None,
    agents: Annotated[int | None, typer.Option(min=0, help="Agents in the field instead of those known.")] = None,
    problems: Annotated[int | None, typer.Option(min=1, help="Problems instead of the policy's.")] = None,
) -> None:
    """Say what the coming or running race is likely to cost this validator: episodes x tokens x price.

    arena race forecast --state-dir node

    arena race forecast --config arena.toml --agents 20 --problems 90

    Tokens of an episode are the mean of the last races in the ledger; before any they are assumed. Prices are those of
    the tables `upstreams` now, caps those of the table `budget`. At most is what it costs if every episode meets
    its policy's limits.
    """
    from neurons.settings.endpoints import episode_costs, most_of_episode, prices_of
    from neurons.settings.inputs import policy_of, unix_ms

    settings = settings_of({"state_dir": state_dir}, config)
    upstreams, judges = ([one for one in settings.upstreams if one.role == role] for role in ("agents", "judge"))
    state, rows, coming = StoreFlags(state_dir=settings.state_dir).run(_read_ledger)
    policy = state.opened.policy if state and state.opened else policy_of(settings)
    field = state.field if state and state.settlement is None else None
    rules = msgspec.structs.replace(policy.race, problems=problems or policy.race.problems)
    if agents is None:
        agents = len(field.field) if field else coming
    found = predict(
        state.race_id if field and state else "the next race",
        rules,
        agents,
        len(field.validators) if field else 1,
        rows,
        episode_costs(policy, upstreams, judges),
        most_of_episode(policy, upstreams, judges),
        prices_of(upstreams, judges),
    )
    amounts = (
        ("agents", found.inference),
        ("judges", found.judging),
        ("together", found.inference.plus(found.judging)),
    )
    headings, ran = ("tokens in", "tokens out", "USD"), counted(agents, "agent")
    cells = [
        (name, f"{one.prompt_tokens:,}", f"{one.completion_tokens:,}", dollars(one.micro_usd)) for name, one in amounts
    ]
    basis = f"the mean of {counted(found.races, 'race')}" if found.races else "assumed: no race has shown them yet"
    lines = [
        f"{found.race_id}: {rules.problems} problems x ({ran} + a control agent): {found.episodes} episodes",
        table_text(("asked by", *headings), cells, right=headings),
        f"at most {dollars(found.most_micro_usd)}, if every episode meets its policy's limits",
        f"tokens of an episode: {basis}; prices: [[upstreams]]",
    ]
    today = sum(one.micro_usd or 0 for one in spent(row for row in rows if row.day == day_of(unix_ms())))
    for usd, name, before in ((settings.budget.race_usd, "race", 0), (settings.budget.day_usd, "day", today)):
        if usd and found.micro_usd is not None:
            left = round(usd * 1e6) - before
            share = max(0, left - (found.most_micro_usd or 0) // found.episodes) / max(1, found.micro_usd)
            runs = f"too little\n  about {share:.0%} of the problems run"
            fits = "enough" if share >= 1 else f"{runs}; over {rules.cancel_void_e4 / 1e4:.0%} void cancel the race"
            lines.append(f"cap of a {name} ${usd:,.2f}, {dollars(left)} left: {fits}")
    show(found, lines)


async def _read_ledger(store: PostgresStore) -> tuple[RaceState | None, list[UsageTotal], int]:
    """The newest race, all accounts, and how many hotkeys have an agent that qualified or may yet."""
    from neurons.race.log import newest_race

    coming = {one.subject.miner_hotkey for one in await store.submissions(("waiting", "accepted", "qualified"))}
    return await newest_race(store), await store.usage_totals(), len(coming)


@command(app)
def replay(
    race: _Race,
    store: StoreFlags,
    policy: Annotated[list[str] | None, typer.Option(help="Also settle under this policy: name or JSON file.")] = None,
    validator: ValidatorOption = "",
) -> None:
    """Settle a race again from records alone: draw, scores, ranking and weights.

    Ends with 0 when every byte is the same, with 4 when something is not, and names it. Under another policy nothing
    is compared: the table shows how the race would have ended.
    """
    from arena.exchange.peer_logs import PeerLogStore
    from neurons.race.log import read_race, replay_race
    from neurons.settings.inputs import held_path

    pulled = held_path(store.folder)

    async def read(logs: PostgresStore) -> tuple[SettlementRecord, list[SettlementRecord], RaceRecords]:
        """The race's settlement, those before and after it, and what its own was made from."""
        settled, _ = await settled_and_named(logs, validator)
        given = _of_race([each.settlement for each in settled if each.force != "none" or each.differing == ()], race)
        history = [each.settlement for each in settled if each.force != "none" or each.settlement == given]
        held = PeerLogStore(pulled, is_reader=True) if pulled.exists() else None
        return given, history, await read_race(logs, held, given)

    found, settlements, records = store.run(read)
    made, inputs = replay_race(found, records, settlements)
    differing = differences(made, found)
    policies = [policy_named(name) for name in policy or ()]
    others = [(other.name, replay_race(found, records, settlements, other)[0]) for other in policies]
    lines = [
        f"{race}: settled again from {len(inputs.evaluations)} evaluations and {len(inputs.verdicts)} verdicts",
        f"DIFFERENT: {', '.join(differing)}" if differing else "equal, byte for byte",
    ]
    for name, other in others:
        lines += [f"\nunder {name}:", *standing_lines(other, {})]
    shown = {"race": race, "differing": differing, "made": made, "others": dict(others)}
    show(shown, lines, EXIT_INTEGRITY if differing else 0)


@app.command()
def weights(
    cases: Annotated[
        Path,
        typer.Option(
            help="Cases, one JSON object a line: case_id, metagraph_hotkeys, finishers, t_top, t_burn.",
            exists=True,
            dir_okay=False,
        ),
    ],
) -> None:
    """Compute SN15's reference weight vector for cases kept in a file.

    Prints one JSON line per case: its case_id with uids and weights, or with the name of the error that impossible
    shares raise. Exit code 2 for a malformed line.
    """
    with cases.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                case = msgspec.json.decode(line, type=WeightCase)
            except msgspec.DecodeError as error:
                raise refuse(f"line {number} is not a case: {error}", EXIT_USAGE) from error
            try:
                vector = reference_vector(case.metagraph_hotkeys, case.finishers, case.t_top, case.t_burn)
            except ValueError as error:
                echo_json({"case_id": case.case_id, "error": type(error).__name__})
            else:
                echo_json({"case_id": case.case_id, "uids": vector.uids, "weights": vector.weights})


async def settled_and_named(store: PostgresStore, validator: str) -> tuple[list[SettledRace], dict[str, str]]:
    """The settled races of a log, or of all, oldest first, and the names of agents by version."""
    from neurons.race.log import read_settled

    settled = [row for name in await logs_of(store, validator) for row in await read_settled(store, name)]
    return settled, names_of(await store.submissions())


def _of_race(settlements: list[SettlementRecord], race: str) -> SettlementRecord:
    for settlement in settlements:
        if settlement.race_id == race:
            return settlement
    known = ", ".join(settlement.race_id for settlement in settlements[-5:]) or "none yet"
    raise typer.BadParameter(f"{race} is not settled; the latest settled: {known}")


def standing_lines(settlement: SettlementRecord, names: Mapping[str, str]) -> Iterator[str]:
    """The standings of a settlement with their intervals, the agent at the top and the weights."""
    if not settlement.standings:
        yield f"no standings: {settlement.reason or 'nobody raced'}"
        return
    weights = dict(zip(settlement.uids, settlement.weights_u16, strict=True))
    evidence = held_by_hotkey(settlement)
    more = f" {'evidence':>8}" if evidence else ""
    head = (
        f"{'#':>2} {'agent':<23} {'score':>5} {'95 %':>11} {'solved':>6} {'quality':>7} {'agentic':>7} {'missing':>7}"
    )
    yield head + more
    for row in settlement.standings:
        mark = "*" if row.agent_version_id == settlement.top_agent_version_id else " "
        yield (
            f"{row.rank:>2} {agent_name(row.agent_version_id, names) + mark:<23} {row.race_score_e4 / 10_000:>5.3f} "
            f"{row.low_e4 / 10_000:>5.3f}-{row.high_e4 / 10_000:.3f} {row.success_e4 / 10_000:>6.3f} "
            f"{row.mean_quality_e4 / 10_000:>7.3f} {row.agentic_share_e4 / 10_000:>7.3f} "
            f"{row.missing + row.faulted:>7}"
            + (f" {evidence[row.miner_hotkey] / UNIT:>8.4g}" if row.miner_hotkey in evidence else "")
        )
    total = sum(weights.values()) or 1
    paid = ", ".join(f"uid {uid} {weight / total:.1%}" for uid, weight in sorted(weights.items()) if weight)
    yield f"* top: {top_sentence(settlement, names)}"
    yield f"weights: {paid} (uid 0 is burned)"
    yield "missing: problems without a result, or lost to faults"
    if evidence:
        yield "evidence: against the top agent; who holds enough, after enough races, takes the top (docs/mechanism.md)"


def _release(store: StoreFlags, race: str, titles: Path | None) -> tuple[Disclosure | str, list[str]]:
    """What the race's release opened, held against what the race committed to, with its lines; `titles`: the file to
    write the batch's accepted titles to."""
    from neurons.race.log import RaceLog, read_state

    path = store.folder / "bank" / f"{race}.batch.json"

    async def checked(logs: PostgresStore) -> Disclosure | str:
        state, log = await read_state(logs, race), RaceLog(logs, race)
        if state.opened is None or not state.is_released:
            return state.stage if state.opened is None or state.draw is None else f"{state.stage}, not released"
        await log.refresh()
        if log.release is None:
            return "released, but the log holds no release record"
        return check_release(log.release, state.opened.batch, read_batch(path) if path.exists() else None)

    found = store.run(checked)
    if isinstance(found, str):
        return found, [f"release: {found}: nothing is open"]
    lines = [
        f"{one.problem_id:<20} {one.pool:<6} {one.cluster_id[:16]}  "
        f"{'broken' if one.problem_id in found.broken else 'kept'}"
        for one in found.record.problems
    ]
    lines += [f"broken: {fault}" for fault in found.faults]
    kept = "every commitment is kept" if found.is_ok else "NOT as committed"
    salt = found.record.salt
    lines.append(f"released: {len(found.record.problems)} problems, salt {salt}; batch {found.batch}; {kept}")
    if titles is not None and found.is_ok:
        released = read_batch(path).titles if found.batch == "kept" else None
        if released is None:
            held = "holds no titles of its own" if found.batch == "kept" else "does not stand there"
            raise typer.BadParameter(f"{path} {held}", param_hint="--titles")
        titles.write_bytes(encode_accepted(released))
        lines.append(f"{titles}: {len(released.accepted)} titles of {released.name}")
    return found, lines
