"""Options and arguments that several commands take, alone and in groups; and the store that they name.

A group is a frozen dataclass of options: `command` registers a function that takes groups, and typer sees their parts.
An option whose meaning is one command's own stands with that command.

The store is that of a DSN, or of a state folder, whose embedded server is started for the command. A server
that nobody else uses is stopped again, and no record is ever written. Bodies that lie in an object store are read from
the one that the state folder names or, with a DSN, ARENA_BODIES_URL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer

from arena.chain.keys import verify
from arena.chain.port import Signer
from arena.store.location import StoreLocation, default_state_dir, read_location
from foundation.errors import ArenaError
from foundation.logs import configure_logs
from neurons.cli.presenter import printing_json, show_progress

if TYPE_CHECKING:
    from arena.policy import Policy
    from arena.records.model import RecordContent, SignedRecord
    from arena.store.postgres import PostgresStore
    from neurons.settings.settings import Settings
    from problems.clusters import ProductClasses
    from problems.model import Problem, Product
    from problems.partition import OpenPartition, PartitionManifest
    from training.corpus.gates import Guard
    from training.corpus.model import CorpusPool

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # as a path has it
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


def shipped_path(name: str) -> Path:
    """The path; where nothing lies there, that of what the package ships under this name (`examples/`,
    `training/recipes/`): the pages' lines run without a checkout, too.
    """
    path, package = Path(name), Path(__file__).parents[2]
    shipped = {"examples": package / "harness" / "agents", "training/recipes": package}
    found = [root / path for begin, root in shipped.items() if path.is_relative_to(begin) and ".." not in path.parts]
    return path if path.exists() or not found or not found[0].exists() else found[0]


# -- a node: its folder, its store, its policy
StateDirOption = Annotated[
    Path | None, typer.Option("--state-dir", help="State folder of the node. Default: ARENA_STATE_DIR or the system's.")
]
DsnOption = Annotated[
    str,
    typer.Option(
        "--dsn",
        help="Read this Postgres instead of the state folder's store. Bodies outside of it are read from the URL in"
        " ARENA_BODIES_URL.",
    ),
]
ValidatorOption = Annotated[str, typer.Option("--validator", help="Whose log, where the store holds several.")]
PolicyOption = Annotated[str | None, typer.Option("--policy", help="Shipped policy or a JSON file.")]

# -- where work runs
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS|local",
        help="Run on a Ray cluster: host:port of its head, which this machine has joined, or `local`.",
    ),
]

# -- problems, and the catalogue they are asked of
ProblemFile = Annotated[
    Path, typer.Argument(help="Problem file (upstream test set, SN15 suite, or ours), or s1, s2, s3.")
]
ProblemFiles = Annotated[list[Path], typer.Argument(help="Problem files, or shipped suites by name: s1, s2, s3.")]
CatalogueOption = Annotated[
    Path | None, typer.Option("--catalogue", help="Folder of `arena catalogue build`; else the node's.", exists=True)
]
GoodsOption = Annotated[
    Path | None, typer.Option("--catalogue", help="Index folder, or the documents.jsonl of one.", exists=True)
]
TitlesOption = Annotated[
    str, typer.Option("--titles", help="Title matcher: lexical/1, or the file of a bank's title release.")
]

# -- a corpus: what may enter it
TrustUnsignedOption = Annotated[
    bool, typer.Option("--trust-unsigned", help="Take an export that its validator did not sign; lineage says so.")
]
CorpusArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A corpus.", exists=True, file_okay=False)]

# -- a wallet: the hotkey that a command signs with; settings fill in what no flag says
WALLET_SPELLINGS = {  # by setting: the older dotted names first, then those of `btcli` and of other subnets
    "wallet_name": ("--wallet.name", "--wallet", "--wallet-name", "-w"),
    "wallet_hotkey": ("--wallet.hotkey", "--wallet-hotkey", "-H"),
    "wallet_path": ("--wallet.path", "--wallet-path"),
    "network": ("--subtensor.network", "--subtensor.chain_endpoint", "--network", "-n"),
}
NetworkOption = Annotated[
    str,
    typer.Option(
        *WALLET_SPELLINGS["network"], help="local, finney, a chain's ws:// URL, or http:// of a served local chain."
    ),
]


# -- groups
@dataclass(frozen=True)
class StoreFlags:
    """Which store a command reads."""

    dsn: DsnOption = ""
    state_dir: StateDirOption = None

    def run(self, work: Callable[[PostgresStore], Coroutine[Any, Any, T]], *, is_owner: bool = False) -> T:
        """What `work` returns, given the store. Raises ArenaError as `open`."""
        import asyncio  # 10 ms, here and below: many commands await nothing

        async def opened() -> T:
            async with self.open(is_owner=is_owner) as store:
                return await work(store)

        return asyncio.run(opened())

    @contextlib.asynccontextmanager
    async def open(self, *, is_owner: bool = False) -> AsyncIterator[PostgresStore]:
        """The store; an embedded server runs while the block does. Raises ArenaError V2021, V2022, V2023, V2027, V2028,
        V2029.

        `is_owner`: as the owner of a state folder's server, who reads every log in it.
        """
        from arena.store.embedded import embedded_server
        from arena.store.objects import open_objects
        from arena.store.postgres import PostgresStore

        location = location_of(self.dsn, self.folder)
        objects, login = open_objects(location.objects) if location.objects else None, location.dsn
        async with contextlib.AsyncExitStack() as stack:
            if location.kind == "embedded":
                server = await stack.enter_async_context(embedded_server(self.folder))
                login = server.owner_dsn if is_owner else login
            store = await PostgresStore.open(login, objects=objects)
            stack.push_async_callback(store.close)
            yield store

    @property
    def folder(self) -> Path:
        """The state folder that is named, else the one set or the system's."""
        return state_folder(self.state_dir)


@dataclass(frozen=True)
class KeyFlags:
    """The hotkey that a command signs with; settings fill in what no flag says."""

    wallet_name: Annotated[
        str, typer.Option(*WALLET_SPELLINGS["wallet_name"], help="Coldkey's name in the wallet.")
    ] = ""
    wallet_hotkey: Annotated[
        str, typer.Option(*WALLET_SPELLINGS["wallet_hotkey"], help="Hotkey; locally also //NAME.")
    ] = ""
    wallet_path: Annotated[str, typer.Option(*WALLET_SPELLINGS["wallet_path"], help="Folder of the wallets.")] = ""


@dataclass(frozen=True)
class WalletFlags(KeyFlags):
    """The hotkey, and its network."""

    network: NetworkOption = ""

    def open(self) -> Signer:
        """Its signer. Raises ArenaError V2030 for a key that can't be read or a setting."""
        from neurons.settings.inputs import signer_of

        return signer_of(settings_of(vars(self)))


@dataclass(frozen=True)
class BenchFlags:
    """What episodes stand on: index, policy and state folder."""

    catalogue: CatalogueOption = None
    policy: PolicyOption = None
    state_dir: StateDirOption = None

    def named(self, model: str = "", model_url: str = "") -> dict[str, object]:
        """The settings that these flags give, as they are called from anywhere; `model_url` takes the place of all
        endpoints that are set."""
        flags: dict[str, object] = {
            "catalogue_dir": self.catalogue and self.catalogue.absolute(),
            "policy": str(Path(self.policy).absolute()) if self.policy and Path(self.policy).exists() else self.policy,
            "state_dir": self.state_dir and self.state_dir.absolute(),
            "models": model,
        }
        return flags | ({"openai_base_url": model_url, "upstreams": ()} if model_url else {})

    def settings(self, model: str = "", model_url: str = "", *, is_miner: bool = False) -> Settings:
        """The node's settings with these above them. A miner who chose neither a policy nor a judge gets the policy
        `demo`, which needs no key. Raises ArenaError V2030."""
        settings = settings_of(self.named(model, model_url))
        is_judged = settings.judge_base_url or any(one.role == "judge" for one in settings.upstreams)
        if is_miner and not settings.policy and not is_judged:
            return msgspec.structs.replace(settings, policy="demo")
        return settings


@dataclass(frozen=True)
class LeakFlags:
    """Which problems must not be learnt from."""

    held_out: Annotated[list[Path] | None, typer.Option(help="Held-out problems: a file or suite.")] = None
    partition: Annotated[Path | None, typer.Option(help="The private partition, or with --bank the public one.")] = None
    bank: Annotated[str, typer.Option(help="Hotkey of the bank that signed the public partition.")] = ""

    def partitions(self) -> tuple[PartitionManifest | None, OpenPartition | None]:
        """The public partition or the private one, whichever is named. Raises ArenaError P4001, P4026, P4010."""
        from arena.bank.partition_file import read_partition, read_public_manifest

        if self.partition is None:
            return None, None
        if self.bank:
            return read_public_manifest(self.partition, self.bank, verify), None
        return None, read_partition(self.partition, verify)

    def guard(self, catalogue: Path | None, admits: CorpusPool, *, is_needed: bool = False) -> Guard:
        """The leak guard of the partition and the problems named, for a corpus of the pool `admits`. `is_needed`: of
        rows that no release speaks for; where nothing is named then, that is a usage error.

        Raises ArenaError P4001, P4026, P4010.
        """
        from training.corpus.gates import Guard

        if is_needed and not (self.held_out or self.partition):
            raise typer.BadParameter("give --held-out or --partition, too: nothing else says what may be learnt")
        public, private = self.partitions()
        return Guard(
            public,
            {"eval": read_files(self.held_out or [])},
            partition=private,
            classes=classes_in(catalogue),
            admits=admits,
        )


def policy_named(name: str) -> Policy:
    """The policy of that name, shipped or a JSON file; "": the one that is set. Raises ArenaError V2030."""
    from neurons.settings.inputs import policy_of

    return policy_of(settings_of({"policy": name}))


def settings_of(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """The settings with these flags above them. Raises ArenaError V2030."""
    from neurons.settings.settings import resolve

    return resolve(flags, config).settings


def command(app: typer.Typer, name: str | None = None, *, has_json: bool = True, **settings: Any) -> Callable[[F], F]:
    """Register a function as a command; typer sees the parts of each group that it takes, and with `has_json` the
    option `--json`, which `presenter.show` heeds. The function, which may be a coroutine's, stays itself."""

    def register(function: F) -> F:
        app.command(name or function.__name__.replace("_", "-"), **settings)(_flat(function, has_json))
        return function

    return register


def _flat(function: Callable[..., object], has_json: bool) -> Callable[..., None]:
    groups: dict[str, Any] = {}
    own: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if not dataclasses.is_dataclass(hint := hints[name]):
            own.append(parameter.replace(annotation=hint, kind=keyword))
            continue
        groups[name] = hint
        parts = get_type_hints(hint, include_extras=True)
        for field in dataclasses.fields(hint):
            shared.append(inspect.Parameter(field.name, keyword, default=field.default, annotation=parts[field.name]))
    if has_json:
        option = Annotated[bool, typer.Option("--json", help="Print JSON.")]
        shared.append(inspect.Parameter("as_json", keyword, default=False, annotation=option))

    def call(**given: Any) -> None:
        configure_logs(level="warning")  # stdout is for results; a long-running command asks for more
        for place in given.values():
            if isinstance(place, Path) and _URL.match(str(place)):
                raise typer.BadParameter(f"{place} is a URL, and a folder or file of this machine is wanted")
        is_wanted = given.pop("as_json", False)
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        with printing_json(is_wanted):
            if inspect.iscoroutine(work := function(**given)):
                import asyncio

                asyncio.run(work)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    vars(call)["__signature__"] = inspect.Signature([*own, *shared])
    return call


# -- what a command reads from a store
MESSAGE_NOT_FOUND = "no record matches {which!r}; give a number, or the beginning of a record, body or attempt id"


def state_folder(given: Path | None) -> Path:
    """The state folder that a flag names, else the one set, in the settings file too, or the system's. Raises
    ArenaError V2030 for a wrong setting."""
    if given is None and (os.environ.get("ARENA_CONFIG") or Path("arena.toml").is_file()):
        given = settings_of({}).state_dir
    folder = given or default_state_dir()
    return folder.resolve() if folder.is_symlink() else folder  # `demo/latest`: a server is known by its own path


def export_folder(named: str, below: Path) -> Path:
    """The folder of an export that a command names; one in an object store is brought to a folder below `below`."""
    from arena.export.files import bring_export, is_location

    if is_location(named):
        return bring_export(named, below.absolute(), functools.partial(show_progress(), "fetch"))
    if not Path(named).is_dir():
        is_file = Path(named).is_file()
        rows = f"{named} is a file, not an export folder; for rows of elsewhere: `arena corpus build --foreign {named}`"
        raise typer.BadParameter(rows if is_file else f"there is no folder {named}")
    return Path(named).absolute()


def location_of(dsn: str, state_dir: Path) -> StoreLocation:
    """Where the store of a DSN (""; of a state folder) and its bodies are. Raises ArenaError V2021, V2027."""
    if dsn:
        bodies_url = os.environ.get("ARENA_BODIES_URL", "").strip()
        return StoreLocation(kind="external", validator="", dsn=dsn, objects=bodies_url)
    location = read_location(state_dir)
    if location is None:
        raise ArenaError("V2027", f"no store is known in {state_dir}", fix="give --state-dir of a node, or of a demo")
    return location


async def logs_of(store: PostgresStore, validator: str) -> list[str]:
    """The logs a command looks at: the one asked for, else all of them."""
    names = await store.validators()
    if validator and validator not in names:
        raise typer.BadParameter(f"there is no log of {validator} here")
    return [validator] if validator else names


async def find_record(
    store: PostgresStore, which: str, validator: str
) -> tuple[SignedRecord, RecordContent | None] | None:
    """The first record that `which` names, and its content (None: it can't be decoded); None when there is none."""
    seq = int(which) if which.isdecimal() else None
    for name in await logs_of(store, validator):
        async for record in store.records(name, after_seq=max(0, (seq or 1) - 1)):
            content = read_or_none(record)
            if record.seq == seq:
                return record, content
            if seq is not None:
                break
            payload = getattr(content, "payload", None)
            ids = (record.content_sha256, *(str(getattr(payload, id_, "")) for id_ in ("body_sha256", "attempt_id")))
            if which and any(one.startswith(which) for one in ids):
                return record, content
    return None


def read_or_none(record: SignedRecord) -> RecordContent | None:
    """A stored record's content, or None when it can't be decoded; `arena records verify` says what is wrong then."""
    from arena.records.body import decode_content

    try:
        return decode_content(record.content)
    except ArenaError:
        return None


# -- problems and products that a command reads
def products_in(catalogue: Path | None) -> Iterator[Product]:
    """Every product of an index, or of a file of documents. Raises typer.BadParameter for None."""
    from harness.catalogue.build import read_products
    from harness.catalogue.native import open_catalogue

    if catalogue is None:
        raise typer.BadParameter("name the products", param_hint="--catalogue")
    return read_products(catalogue) if catalogue.is_file() else open_catalogue(catalogue).products()


def classes_in(catalogue: Path | None) -> ProductClasses:
    """Which products are near-identical; by their titles alone where no catalogue is given."""
    from problems.clusters import NO_CATALOGUE, find_classes

    return find_classes(products_in(catalogue)) if catalogue else NO_CATALOGUE


def read_file(path: Path) -> Sequence[Problem]:
    """The problems of a file, or of the shipped suite of that name where no such file exists.

    Raises ArenaError P4001 to P4009 naming line and field, typer.BadParameter when it holds no problem, OSError.
    """
    from problems.formats import read_problems

    if not path.exists() and (suite := shipped_named(str(path))):
        return suite
    with path.open("rb") as stream:
        problems = read_problems(stream)
    if not problems:
        raise typer.BadParameter(f"{path} holds no problem")
    return problems


def read_files(paths: Sequence[Path]) -> list[Problem]:
    """The problems of several files, in order."""
    return [problem for path in paths for problem in read_file(path)]


def shipped_named(name: str) -> Sequence[Problem]:
    """The problems of a shipped suite; none when no suite has that name. Raises ArenaError P4010 for damaged files."""
    from arena.bank.suite_signature import open_shipped
    from problems.suites import SUITES

    return open_shipped(name, verify).problems if name in SUITES else ()


# -- what a command writes
def refuse_existing(path: Path, instead: str = "choose another path, or move it away") -> None:
    """Raise typer.BadParameter when something stands at `--out` already; make the folder that it is to be in."""
    if path.exists():
        raise typer.BadParameter(f"{path} exists: {instead}", param_hint="--out")
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
