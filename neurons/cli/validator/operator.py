"""`arena operator`: the files that every validator of a subnet must have, signed once and passed on by validators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurons.cli.options import (
    JsonOutOption,
    NetuidOption,
    NetworkOption,
    StateDirOption,
    WalletHotkeyOption,
    WalletNameOption,
    WalletPathOption,
    complete_policy,
    open_signing_key,
)
from neurons.cli.presenter import show
from neurons.cli.problems.catalogue import app as catalogue_app
from neurons.cli.problems.problems import app as problems_app

if TYPE_CHECKING:
    from arena.exchange.operator_files.release import SignedRelease
    from arena.exchange.operator_files.release_store import ReleaseStore

app = typer.Typer(
    help="""Make what all validators share (problems, catalogue), and hand it out.

    arena operator problems list s1

    arena operator publish sealed/ suites/ --policy paper --wallet.hotkey operator --state-dir STATE

    arena operator releases --state-dir STATE
    """,
    no_args_is_help=True,
)
app.add_typer(problems_app, name="problems")
app.add_typer(catalogue_app, name="catalogue")


@app.command()
def publish(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FOLDER|FILE...", help="What to publish.")] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="Also publish this policy: a shipped one by name, or a JSON file.",
            autocompletion=complete_policy,
        ),
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop what the release before held, instead of carrying it on.")
    ] = False,
    state_dir: StateDirOption = None,
    netuid: NetuidOption = None,
    wallet_name: WalletNameOption = "",
    wallet_hotkey: WalletHotkeyOption = "",
    wallet_path: WalletPathOption = "",
    network: NetworkOption = "",
    as_json: JsonOutOption = False,
) -> None:
    """Sign a release of files that validators share; the node of the state folder hands it to all others.

    arena operator publish sealed/ suites/ --policy paper --wallet.hotkey operator --state-dir STATE

    Takes signed suites (`arena problems sign-suite`), sealed batches (`arena problems seal`), policy.json, an index
    folder, and title releases that are named one by one. Other files of a folder are left out and named. What the
    release before held goes on, but for batches whose round is a week past; its number rises by one, so publish through
    one node. That node must share races (`--share`); it may run meanwhile. Next: `arena operator releases`.
    """
    from arena.chain.keys import verify
    from arena.chain.opening import open_timelock
    from arena.exchange.operator_files.publishing import collect
    from arena.exchange.operator_files.publishing import publish as sign_and_keep
    from neurons.node.public_inputs import policy_of
    from neurons.node.released_settings import open_releases, write_policy
    from neurons.node.settings import resolve
    from neurons.node.wiring import unix_ms

    flags = {"state_dir": state_dir, "netuid": netuid, "network": network, "policy": policy}
    settings = resolve(flags).settings
    if not paths and not policy:
        raise typer.BadParameter("name a folder, a file or --policy", param_hint="FOLDER|FILE")
    signer = open_signing_key(wallet_name, wallet_hotkey, wallet_path, network)
    found = collect(paths or ())
    sources = list(found.sources)
    if policy:
        rules = policy_of(settings)
        sources.append(("policy", "policy.json", write_policy(settings.state_dir, rules, rules.policy_sha256)))
    store = open_releases(settings.state_dir)
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
    row = _describe(signed, store) | {"left_out": [str(path) for path in found.skipped]}
    lines = [*_lines(signed, store), *(f"left out: {path} is nothing that validators share" for path in found.skipped)]
    lines.append(f"validators set operator_hotkey = {signer.hotkey}, or take it from the chain as the subnet's owner")
    show(row, lines, as_json=as_json)


@app.command()
def releases(state_dir: StateDirOption = None, as_json: JsonOutOption = False) -> None:
    """Show the operator's newest release as this state folder holds it: who signed it, its files, what is missing.

    Reads files alone, whether or not a validator runs. A second release that the operator signed with one number is
    shown beside it: validators keep the one they saw first.
    """
    from neurons.node.released_settings import open_releases
    from neurons.node.settings import resolve

    settings = resolve({"state_dir": state_dir}).settings
    store = open_releases(settings.state_dir)
    newest, whole, second = store.newest(), store.whole(), store.second()
    if newest is None:
        none = f"no release in {store.folder}: `arena operator publish`, or start a validator that shares races"
        show({"release": None}, [none], as_json=as_json)
        return
    lines = list(_lines(newest, store))
    if whole is not None and whole != newest:
        lines.append(f"release {whole.release.sequence} is the newest that is whole")
    if second is not None:
        about = f"release {second.release.sequence}, {second.release.release_sha256}"
        lines.append(f"U3047: {second.release.signer} signed another {about}, which is not used")
    row = _describe(newest, store) | {
        "whole_sequence": whole.release.sequence if whole else 0,
        "second_sha256": second.release.release_sha256 if second else "",
    }
    show(row, lines, as_json=as_json)


def _describe(signed: SignedRelease, store: ReleaseStore) -> dict[str, Any]:
    release = signed.release
    missing = {file.sha256 for file in store.missing(release)}
    files = [
        {
            "kind": file.kind,
            "name": file.name,
            "sha256": file.sha256,
            "size_bytes": file.size_bytes,
            "is_here": file.sha256 not in missing,
        }
        for file in release.files
    ]
    return {
        "release": release.sequence,
        "release_sha256": release.release_sha256,
        "signer": release.signer,
        "netuid": release.netuid,
        "made_ms": release.made_ms,
        "files": files,
        "missing": len(missing),
    }


def _lines(signed: SignedRelease, store: ReleaseStore) -> list[str]:
    from datetime import UTC, datetime

    release, row = signed.release, _describe(signed, store)
    made = datetime.fromtimestamp(release.made_ms / 1_000, UTC).isoformat(timespec="seconds")
    return [
        f"release {release.sequence} for netuid {release.netuid}, {release.release_sha256}",
        f"signed by {release.signer}, {made}",
        *(
            f"  {file['kind']:<9} {file['sha256'][:12]} {file['size_bytes']:>11,}  {file['name']}"
            + ("" if file["is_here"] else "  MISSING")
            for file in row["files"]
        ),
        f"{len(release.files)} files, {row['missing']} missing in {store.folder}",
    ]
