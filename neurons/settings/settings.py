"""Settings: one frozen value, read once, each field with the place it came from.

Precedence: flag > environment (`ARENA_*`, and the plain `OPENAI_*`) > TOML file (`arena.toml` here, or `--config`) >
default. An unknown key is an error that names its nearest, never a silent nothing. Secrets are never printed. This file
reads settings; it opens nothing they point at. Flags are parsed where commands are (`neurons.cli.validator`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from arena.chain.port import split_endpoint
from arena.store.location import default_state_dir, read_dsn
from foundation.codes import lookup
from foundation.errors import ArenaError, nearest, redacted
from harness.limits import TokenPrice


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI-compatible endpoint, as an entry of `[[upstreams]]` in the settings file names it. The key is filled
    in when it is opened."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]+$")]
    base_url: Annotated[str, msgspec.Meta(pattern=r"^https?://")]
    api_key_env: str = ""  # the environment variable that holds its key
    models: tuple[str, ...] = ()  # it is asked for these alone; empty: for every model that no other entry names
    requests_at_once: Annotated[int, msgspec.Meta(ge=0)] = 0  # of all workers together; 0: any number
    price: TokenPrice | None = None  # None: not known
    role: Literal["agents", "judge"] = "agents"  # who asks it
    api_key: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.base_url}{': ' if self.models else ''}{', '.join(self.models)})"


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What models may cost this node, as the table `[budget]` names it; 0: not bounded. A day is UTC's."""

    race_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    day_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    judge_race_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0  # of the verdicts of one race

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in msgspec.structs.asdict(self).items() if value)


ENVIRONMENT_PREFIX = "ARENA_"
DEFAULT_CONFIG = Path("arena.toml")
NOBODY = "none"  # the setting operator_hotkey of a node that takes nobody's files
WORKERS_MAX = 1_024
_PLAIN_ENVIRONMENT = {"OPENAI_BASE_URL": "openai_base_url", "OPENAI_API_KEY": "openai_api_key"}
TABLES = ("upstreams", "budget")  # which only a file holds in the form that people write
_BOOLS = dict.fromkeys(("yes", "y", "on", "t"), True) | dict.fromkeys(("no", "n", "off", "f"), False)


def read_hotkey(text: str) -> None:
    """Raises ArenaError V2030 for what is no hotkey's address."""
    from arena.chain.keys import public_key

    if public_key(text) is None:
        raise ArenaError("V2030", f"{text!r} is not an ss58 address")


class Secret:
    """A text that nothing prints."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __repr__(self) -> str:
        return "(hidden)" if self.text else ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of this software, each with the text that `arena validator --help` shows."""

    state_dir: Path = msgspec.field(default_factory=default_state_dir)
    """where this node keeps everything it writes"""
    catalogue_dir: Path | None = None
    """built index; empty: a synthetic one in state_dir"""
    guest_dir: Path | None = None
    """where the jail's Python is kept, shared by nodes; empty: in state_dir"""
    policy: str = ""
    """name of a shipped policy, or a path to one as JSON; empty: that of the operator's release, else paper"""
    operator_hotkey: str = ""
    """whose releases of files (policy, suite, sealed batches, titles) are taken from other validators, ss58; none:
    nobody's; empty: the subnet owner's hotkey, read from the chain"""
    netuid: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 15
    """the subnet"""
    mechanism: Annotated[int, msgspec.Meta(ge=0, le=15)] = 0
    """the subnet's incentive mechanism whose weights are set"""
    network: str = "local"
    """local, finney, the chain's ws:// or wss:// address, or the http:// address of another machine's local chain"""
    wallet_name: str = "default"
    """coldkey's name"""
    wallet_hotkey: str = "default"
    """hotkey's name"""
    wallet_path: Path = Path("~/.bittensor/wallets")
    """folder of the wallets"""
    wallet_password_file: Path | None = None
    """file whose first line is the password of an encrypted hotkey"""
    wallet_proxy: str = ""
    """another hotkey of the wallet, which the chain knows as a proxy of wallet_hotkey: it signs and pays for
    extrinsics; records and requests stay with wallet_hotkey"""
    database_dsn: Secret = Secret("")
    """Postgres; empty: the embedded server"""
    bodies_url: str = ""
    """where bodies of evaluations are kept: file:///folder or s3://bucket/prefix?endpoint=...&region=..., with AWS_*
    in the environment; empty: in Postgres"""
    bank_hotkey: str = ""
    """the operator's key, ss58: whose sealed batches are raced, and on a real network whose suite agents qualify on;
    empty: the operator's whose release brings them, else this node's own"""
    workers: Annotated[int, msgspec.Meta(ge=1, le=WORKERS_MAX)] = msgspec.field(
        default_factory=lambda: len(os.sched_getaffinity(0))
    )
    """episodes at once, more than cores where agents wait; fewer where memory does not hold them"""
    sandbox: Literal["auto", "bubblewrap", "landlock", "reference-agents-only"] = "auto"
    """jail for agents; auto: the best level that holds here"""
    openai_base_url: str = ""
    """model endpoint; empty: the scripted model"""
    openai_api_key: Secret = Secret("")
    """key of the model endpoint"""
    upstreams: tuple[Endpoint, ...] = ()
    """several model endpoints instead of openai_base_url, or the judge's: [[upstreams]] tables in the settings file,
    with name, base_url, api_key_env, models, requests_at_once, price, role"""
    budget: Budget = Budget()
    """caps on what models cost: the table [budget] in the settings file, with race_usd, day_usd, judge_race_tokens"""
    models: str = ""
    """comma-separated model ids instead of the policy's (another policy hash)"""
    judge_base_url: str = ""
    """judge endpoint; empty: the scripted judge"""
    judge_api_key: Secret = Secret("")
    """key of the judge endpoint"""
    judge_reasoning_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """tokens that a judge model may think with before it writes its reply"""
    judge_reasoning_effort: Literal["", "minimal", "low", "medium", "high"] = ""
    """sent to judge models that take it; empty: not sent"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """least severe line kept"""
    parent_pid: Annotated[int, msgspec.Meta(ge=0)] = 0
    """stop when this process is gone; 0: run on one's own"""
    metrics_host: str = "127.0.0.1"
    """address of metrics and probes; all who reach it may read"""
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """/metrics for Prometheus, /healthz and /readyz; 0: off"""
    checkpoint_dir: Path | None = None
    """a second folder for signed checkpoints, best on another machine; empty: none"""
    public_host: str = "127.0.0.1"
    """address of the door, the public reads and the exchange; all who reach it may ask"""
    serve_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """live tail of the log over HTTP; 0: off"""
    door_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """its port; 0: off, on the local network a free port of loopback"""
    local_chain_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """on the local network: the chain's port at public_host, for miners on other machines; 0: off"""
    share: bool = False
    """race together with the network's other validators; needs public_endpoint"""
    public_endpoint: str = ""
    """http://ip:port published on chain: of the exchange with `share`, of the door without"""
    shadow: bool = False
    """run and settle races, publish them, and set no weights"""
    serve_sn15: bool = False
    """serve reads under the routes of the published SN15 API, too"""

    def __post_init__(self) -> None:
        """A path means the same wherever a process of ours works: its own folder, the jail's or the database's."""
        for name in self.__struct_fields__:
            if isinstance(path := getattr(self, name), Path):
                msgspec.structs.force_setattr(self, name, path.expanduser().absolute())


NAMES = Settings.__struct_fields__
KINDS = get_type_hints(Settings, include_extras=True)  # the type of each, with its bounds
# refuses a text that can't be taken: raises ArenaError
_READ: dict[str, Callable[[str], object]] = {
    "operator_hotkey": lambda text: None if text == NOBODY else read_hotkey(text),
    "database_dsn": read_dsn,
    "bank_hotkey": read_hotkey,
    "public_endpoint": split_endpoint,
}


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as people see it: secrets are masked in `value`."""

    name: str
    value: str
    source: str  # flag, environment, the TOML file's path, or default
    about: str


class ResolvedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, and where each came from."""

    settings: Settings
    origin: dict[str, str]  # by setting, of those that are not the default

    @property
    def rows(self) -> tuple[SettingRow, ...]:
        """Every setting as people see it."""
        told = ((name, _shown(getattr(self.settings, name)), self.origin.get(name, "default")) for name in NAMES)
        return tuple(SettingRow(name=name, value=value, source=at, about=abouts()[name]) for name, value, at in told)


@functools.cache
def abouts() -> Mapping[str, str]:
    """What each setting means: the text that stands below it in `Settings`."""
    (made,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: " ".join(ast.literal_eval(text.value).split())
        for field, text in itertools.pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    }


def resolve(flags: Mapping[str, object], config: Path | None = None) -> ResolvedSettings:
    """Merge the layers, `flags` (by field name) first. None and "" mean not given.

    Raises ArenaError V2030 for an unknown or wrong value, naming its source.
    """
    named = config or (Path(os.environ["ARENA_CONFIG"]) if os.environ.get("ARENA_CONFIG") else None)
    file = named or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for source, values in (("flag", flags), ("environment", _from_environment()), (str(file), _from_file(file))):
        for name, value in values.items():
            if name == "judge_race_tokens":  # as it was called before there was a budget
                raise ArenaError("V2030", f"{source}: {name} is a key of [budget] now", fix="move it to that table")
            if name not in NAMES:
                raise _unknown(source, name, NAMES)
            if name not in merged and value not in (None, ""):
                merged[name], origin[name] = value, source
    settings = Settings(**{name: _converted(name, value, origin[name]) for name, value in merged.items()})
    return ResolvedSettings(settings=settings, origin=origin)


def _converted(name: str, given: Any, source: str) -> Any:
    """The value of a setting as its type. Raises ArenaError V2030."""
    kind = KINDS[name]
    try:
        if isinstance(given, str) and (name in TABLES or kind is bool):
            given = _BOOLS.get(given.lower(), given) if kind is bool else msgspec.json.decode(given)
        value = msgspec.convert(given, kind, strict=name in TABLES, dec_hook=lambda made, text: made(os.fspath(text)))
        if name in _READ:
            _READ[name](value.text if isinstance(value, Secret) else value)
    except (msgspec.MsgspecError, TypeError, ArenaError) as error:
        said = error.failure.detail if isinstance(error, ArenaError) else f"{str(error)[0].lower()}{str(error)[1:]}"
        if get_origin(kind) is Literal:
            said = f"one of {', '.join(filter(None, get_args(kind)))} is wanted"
        is_shown = isinstance(error, msgspec.MsgspecError) and kind is not Secret and name not in TABLES
        raise ArenaError("V2030", f"{name} from {source}{f' is {given!r}' if is_shown else ''}: {said}") from error
    return value


def format_rows(rows: Sequence[SettingRow]) -> list[str]:
    """The lines of `--dry-run`: name, source and value of every setting. `--help` says what each means."""
    names = max(len(row.name) for row in rows)
    sources = max(len(row.source) for row in rows)
    return [f"{row.name:<{names}}  {row.source:<{sources}}  {row.value}".rstrip() for row in rows]


def _from_environment() -> dict[str, Any]:
    names = _PLAIN_ENVIRONMENT | {f"{ENVIRONMENT_PREFIX}{name.upper()}": name for name in NAMES}
    for variable in os.environ:
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in {*names, "ARENA_CONFIG"}:
            raise _unknown("environment", variable, names)
    return {name: os.environ[variable] for variable, name in names.items() if os.environ.get(variable)}


def _from_file(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    if not path.is_file():
        raise ArenaError("V2030", f"--config {path}: there is no such file", fix="check the path")
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArenaError("V2030", f"{path}: {error}", fix="correct the line named here") from error


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment under which another process has these settings, keys included; tables stay in the file."""
    values = {name: getattr(settings, name) for name in NAMES if name not in TABLES}
    plain = {name: one.text if isinstance(one, Secret) else one for name, one in values.items()}
    return {f"{ENVIRONMENT_PREFIX}{name.upper()}": "" if one is None else str(one) for name, one in plain.items()}


def _unknown(source: str, name: str, known: Iterable[str]) -> ArenaError:
    """V2030 for an unknown name, with the nearest known one."""
    plain = {each.removeprefix(ENVIRONMENT_PREFIX): each for each in known}
    near = nearest(name.removeprefix(ENVIRONMENT_PREFIX), plain)
    fix = f"did you mean `{plain[near[0]]}`?" if near else lookup("V2030").remedy
    return ArenaError("V2030", f"{source}: unknown setting `{name}`", fix=fix)


def _shown(value: object) -> str:
    """A setting as people see it; of a secret that there is one."""
    if isinstance(value, tuple):
        return redacted("; ".join(map(str, value)))
    return "" if value is None else redacted(str(value))
