"""`arena operator`: the files that every validator must have, signed once; `arena submissions`: what the gate holds.

A heuristic of the gate never rejects; a person decides here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from arena.chain.keys import verify
from arena.chain.opening import open_timelock
from arena.exchange.operator_files import ReleaseStore, SignedRelease
from arena.records.port import EVERY_STATE
from arena.submissions.submission import read_report
from foundation.errors import Failure, counted
from neurons.cli.options import StateDirOption, StoreFlags, WalletFlags, command, settings_of
from neurons.cli.presenter import EXIT_USAGE, refuse, show
from neurons.race.sentences import short

app = typer.Typer(
    help="""Hand out what all validators share, signed.

    arena operator publish sealed/ suites/ --policy paper --wallet.hotkey operator --state-dir STATE

    arena operator publish --state-dir STATE
    """,
    callback=lambda: None,  # else its one command would take the group's place
    no_args_is_help=True,
)


@command(app)
def publish(
    wallet: WalletFlags,
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FOLDER|FILE...", help="What to publish.")] = None,
    policy: Annotated[str, typer.Option(help="Also publish this policy: a shipped one by name, or a JSON file.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Drop what the release before held.")] = False,
    state_dir: StateDirOption = None,
    netuid: Annotated[int | None, typer.Option(min=0, help="The subnet.")] = None,
) -> None:
    """Sign a release of files that validators share; the node of the state folder hands it to all others.

    arena operator publish sealed/ suites/ --policy paper --wallet.hotkey operator --state-dir STATE

    Takes signed suites (`arena problems sign-suite`), sealed batches (`arena problems seal`), policy.json, an index
    folder, and, named one by one, title releases and programs on which anybody may build (TEMPLATE.py), of which it
    publishes hashes alone. Other files of a folder are left out and named. What the release before held goes on, but
    for batches whose round is a week past; its number rises by one, so publish through one node. That node must share
    races (`--share`); it may run meanwhile. Without anything to publish it shows the newest release that this folder
    holds.
    """
    from arena.exchange.publishing import collect
    from arena.exchange.publishing import publish as sign_and_keep
    from neurons.loops.operator_files import keep_sketch, open_releases, write_policy
    from neurons.settings.inputs import policy_of, unix_ms

    flags = {"state_dir": state_dir, "netuid": netuid, "network": wallet.network, "policy": policy}
    settings = settings_of(flags)
    store = open_releases(settings.state_dir)
    if not paths and not policy:
        newest, whole = store.newest(), store.whole()
        if newest is None:
            none = f"no release in {store.folder}: `arena operator publish`, or start a validator that shares races"
            show({"release": None}, [none])
            return
        lines = [f"release {whole.release.sequence} is the newest that is whole"] if whole and whole != newest else []
        _show(newest, store, lines, whole_sequence=whole.release.sequence if whole else 0)
        return
    signer = wallet.open()
    programs = [path for path in paths or () if path.suffix == ".py"]
    sources, skipped = collect(path for path in paths or () if path not in programs)
    sources += [("sketch", path.name, path) for path in (keep_sketch(settings.state_dir, each) for each in programs)]
    if policy:
        rules = policy_of(settings)
        sources.append(("policy", "policy.json", write_policy(settings.state_dir, rules, rules.policy_sha256)))
    signed = sign_and_keep(
        store,
        sources,
        signer=signer,
        netuid=settings.netuid,
        now_ms=unix_ms(),
        timelock=open_timelock(settings.network),
        verify=verify,
        is_carried=not replace,
    )
    lines = [f"left out: {path} is nothing that validators share" for path in skipped]
    lines.append(f"validators set operator_hotkey = {signer.hotkey}, or take it from the chain as the subnet's owner")
    _show(signed, store, lines, left_out=[str(path) for path in skipped])


def _show(signed: SignedRelease, store: ReleaseStore, lines: list[str], **more: object) -> None:
    """A release as this state folder holds it: who signed it, its files, what is missing; then `lines`, or, as JSON,
    `more`."""
    release = signed.release
    missing = {file.sha256 for file in store.missing(release)}
    files = [
        {**msgspec.to_builtins(file), "is_here": file.sha256 not in missing, "pieces": len(file.pieces)}
        for file in release.files
    ]
    about = {name: getattr(release, name) for name in ("release_sha256", "signer", "netuid", "made_ms")}
    row = {"release": release.sequence, **about, "files": files, "missing": len(missing), **more}
    made = datetime.fromtimestamp(release.made_ms / 1_000, UTC).isoformat(timespec="seconds")
    told = [
        f"release {release.sequence} for netuid {release.netuid}, {release.release_sha256}",
        f"signed by {release.signer}, {made}",
        *(
            f"  {file['kind']:<9} {file['sha256'][:12]} {file['size_bytes']:>11,}  {file['name']}"
            + ("" if file["is_here"] else "  MISSING")
            for file in files
        ),
        f"{counted(len(files), 'file')}, {len(missing)} missing in {store.folder}",
    ]
    show(row, told + lines)


submissions_app = typer.Typer(
    help="""See what the gate holds, and decide it.

    arena submissions list --state-dir DIR

    arena submissions decide 3f9a accept --state-dir DIR

    arena submissions decide 3f9a reject --reason "answers by table" --state-dir DIR
    """,
    no_args_is_help=True,
)

REASON_CHARS_MAX = 200


@command(submissions_app, "list")
def list_submissions(
    state: Annotated[str, typer.Option(help="This state; `review` waits for you, `all` shows all.")] = "review",
    state_dir: StateDirOption = None,
) -> None:
    """List submissions with the findings that put them where they are."""
    stored = StoreFlags(state_dir=state_dir).run(lambda store: store.submissions(EVERY_STATE))
    found = [submission for submission in stored if state in ("all", submission.state)]
    lines = [] if found else ["no submission yet" if state == "all" else f"no submission is in state {state}"]
    for submission in found:
        who = f"{submission.name} {short(submission.subject.miner_hotkey)}"
        lines.append(f"{submission.subject.agent_version_id[:16]}  {submission.state:<11}  {who}")
        report = read_report(submission)
        lines += [f"    {finding}" for finding in report.findings] if report else []
    show(found, lines)


@command(submissions_app, has_json=False)
async def decide(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Agent version id, or the beginning of one.")],
    decision: Annotated[str, typer.Argument(metavar="accept|reject", help="accept: it qualifies; reject: it is out.")],
    reason: Annotated[str, typer.Option(help="Why, in one line; the miner of a rejected one reads it.")] = "",
    state_dir: StateDirOption = None,
) -> None:
    """Accept or reject a submission under review; its report stays with it.

    The running validator takes it up at its next turn. Where the policy admits by agreement, it also signs your
    decision into its log: the agent races once more than half of the validators accept it, or its hold has run out,
    and is out once more than half of them reject it.
    """
    states: dict[str, Literal["accepted", "rejected"]] = {"accept": "accepted", "reject": "rejected"}
    if decision not in states:
        raise typer.BadParameter("accept or reject", param_hint="accept|reject")
    if not reason.isprintable() or len(reason) > REASON_CHARS_MAX:
        raise typer.BadParameter(f"one line of at most {REASON_CHARS_MAX} characters", param_hint="--reason")

    async with StoreFlags(state_dir=state_dir).open() as store:
        matches = [s for s in await store.submissions(("review",)) if s.subject.agent_version_id.startswith(agent)]
        if len(matches) != 1:
            raise refuse(f"{len(matches)} submissions under review begin with {agent!r}", EXIT_USAGE)
        why = reason.strip() if decision == "reject" else ""
        failure = Failure(code="A1005", detail=f"a person rejected it: {why}") if why else None
        version = matches[0].subject.agent_version_id
        await store.set_submission_state(version, states[decision], was="review", failure=failure)
    typer.echo(f"{version[:16]}  {states[decision]}  {matches[0].name}")
