"""Settings: one frozen value, read once, each field with the place it came from.

Precedence: flag > environment (`ARENA_*`, and the plain `OPENAI_*`) > TOML file (`arena.toml` here, or `--config`) >
default. An unknown key is an error that names its nearest, never a silent nothing. Secrets are never printed. This file
reads settings; it opens nothing they point at. Flags are parsed where commands are (`neurons.cli.validator`).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, PlainValidator, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

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


def _table_of(kind: type[Any]) -> PlainValidator:
    def read(given: object) -> Any:
        try:
            return msgspec.json.decode(given, type=kind) if isinstance(given, str) else msgspec.convert(given, kind)
        except msgspec.MsgspecError as error:
            raise ValueError(error) from error

    return PlainValidator(read)


def _read_by(read: Callable[[str], object]) -> AfterValidator:
    """Refuses a value that `read` can't take."""

    def check(value: Any) -> Any:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        try:
            if text:
                read(text)
        except ArenaError as error:
            raise ValueError(error.failure.detail) from error
        return value

    return AfterValidator(check)


def read_hotkey(text: str) -> None:
    """Raises ArenaError V2030 for what is no hotkey's address."""
    from arena.chain.keys import public_key

    if public_key(text) is None:
        raise ArenaError("V2030", f"{text!r} is not an ss58 address")


# A path means the same wherever a process of ours works: its own folder, the jail's or the database's.
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class Settings(BaseSettings):
    """Every setting of this software, each with the text that `arena validator --help` shows."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    state_dir: AbsolutePath = Field(default_factory=default_state_dir, validate_default=True)
    """where this node keeps everything it writes"""
    catalogue_dir: AbsolutePath | None = None
    """built index; empty: a synthetic one in state_dir"""
    guest_dir: AbsolutePath | None = None
    """where the jail's Python is kept, shared by nodes; empty: in state_dir"""
    policy: str = ""
    """name of a shipped policy, or a path to one as JSON; empty: that of the operator's release, else paper"""
    operator_hotkey: Annotated[str, _read_by(lambda text: text == NOBODY or read_hotkey(text))] = ""
    """whose releases of files (policy, suite, sealed batches, titles) are taken from other validators, ss58; none:
    nobody's; empty: the subnet owner's hotkey, read from the chain"""
    netuid: int = Field(default=15, ge=0, le=65535)
    """the subnet"""
    mechanism: int = Field(default=0, ge=0, le=15)
    """the subnet's incentive mechanism whose weights are set"""
    network: str = "local"
    """local, finney, the chain's ws:// or wss:// address, or the http:// address of another machine's local chain"""
    wallet_name: str = "default"
    """coldkey's name"""
    wallet_hotkey: str = "default"
    """hotkey's name"""
    wallet_path: AbsolutePath = Field(default=Path("~/.bittensor/wallets"), validate_default=True)
    """folder of the wallets"""
    wallet_password_file: AbsolutePath | None = None
    """file whose first line is the password of an encrypted hotkey"""
    wallet_proxy: str = ""
    """another hotkey of the wallet, which the chain knows as a proxy of wallet_hotkey: it signs and pays for
    extrinsics; records and requests stay with wallet_hotkey"""
    database_dsn: Annotated[SecretStr, _read_by(read_dsn)] = SecretStr("")
    """Postgres; empty: the embedded server"""
    bodies_url: str = ""
    """where bodies of evaluations are kept: file:///folder or s3://bucket/prefix?endpoint=...&region=..., with AWS_*
    in the environment; empty: in Postgres"""
    bank_hotkey: Annotated[str, _read_by(read_hotkey)] = ""
    """the operator's key, ss58: whose sealed batches are raced, and on a real network whose suite agents qualify on;
    empty: the operator's whose release brings them, else this node's own"""
    workers: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=WORKERS_MAX)
    """episodes at once, more than cores where agents wait; fewer where memory does not hold them"""
    sandbox: Literal["auto", "bubblewrap", "landlock", "reference-agents-only"] = "auto"
    """jail for agents; auto: the best level that holds here"""
    openai_base_url: str = ""
    """model endpoint; empty: the scripted model"""
    openai_api_key: SecretStr = SecretStr("")
    """key of the model endpoint"""
    upstreams: Annotated[tuple[Endpoint, ...], _table_of(tuple[Endpoint, ...])] = ()
    """several model endpoints instead of openai_base_url, or the judge's: [[upstreams]] tables in the settings file,
    with name, base_url, api_key_env, models, requests_at_once, price, role"""
    budget: Annotated[Budget, _table_of(Budget)] = Budget()
    """caps on what models cost: the table [budget] in the settings file, with race_usd, day_usd, judge_race_tokens"""
    models: str = ""
    """comma-separated model ids instead of the policy's (another policy hash)"""
    judge_base_url: str = ""
    """judge endpoint; empty: the scripted judge"""
    judge_api_key: SecretStr = SecretStr("")
    """key of the judge endpoint"""
    judge_reasoning_tokens: int = Field(default=0, ge=0)
    """tokens that a judge model may think with before it writes its reply"""
    judge_reasoning_effort: Literal["", "minimal", "low", "medium", "high"] = ""
    """sent to judge models that take it; empty: not sent"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """least severe line kept"""
    parent_pid: int = Field(default=0, ge=0)
    """stop when this process is gone; 0: run on one's own"""
    metrics_host: str = "127.0.0.1"
    """address of metrics and probes; all who reach it may read"""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """/metrics for Prometheus, /healthz and /readyz; 0: off"""
    checkpoint_dir: AbsolutePath | None = None
    """a second folder for signed checkpoints, best on another machine; empty: none"""
    public_host: str = "127.0.0.1"
    """address of the door, the public reads and the exchange; all who reach it may ask"""
    serve_port: int = Field(default=0, ge=0, le=65535)
    """live tail of the log over HTTP; 0: off"""
    door_port: int = Field(default=0, ge=0, le=65535)
    """its port; 0: off, on the local network a free port of loopback"""
    local_chain_port: int = Field(default=0, ge=0, le=65535)
    """on the local network: the chain's port at public_host, for miners on other machines; 0: off"""
    share: bool = False
    """race together with the network's other validators; needs public_endpoint"""
    public_endpoint: Annotated[str, _read_by(split_endpoint)] = ""
    """http://ip:port published on chain: of the exchange with `share`, of the door without"""
    shadow: bool = False
    """run and settle races, publish them, and set no weights"""
    serve_sn15: bool = False
    """serve reads under the routes of the published SN15 API, too"""


for _field in Settings.model_fields.values():
    _field.description = " ".join((_field.description or "").split())


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as people see it: secrets are masked in `value`."""

    name: str
    value: str
    source: str  # flag, environment, the TOML file's path, or default
    about: str


class ResolvedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, and where each came from."""

    settings: Settings
    rows: tuple[SettingRow, ...]


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
            if name not in Settings.model_fields:
                raise _unknown(source, name, Settings.model_fields)
            if name not in merged and value not in (None, ""):
                merged[name], origin[name] = value, source
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        name, said = str(fault["loc"][0]) if fault["loc"] else "?", fault["msg"].removeprefix("Value error, ")
        raise ArenaError("V2030", f"{name} from {origin.get(name, 'default')}: {said}") from error
    rows = tuple(
        SettingRow(
            name=name,
            value=_shown(getattr(settings, name)),
            source=origin.get(name, "default"),
            about=field.description or "",
        )
        for name, field in Settings.model_fields.items()
    )
    return ResolvedSettings(settings=settings, rows=rows)


def format_rows(rows: Sequence[SettingRow]) -> list[str]:
    """The lines of `--dry-run`: name, source and value of every setting. `--help` says what each means."""
    names = max(len(row.name) for row in rows)
    sources = max(len(row.source) for row in rows)
    return [f"{row.name:<{names}}  {row.source:<{sources}}  {row.value}".rstrip() for row in rows]


def _from_environment() -> dict[str, Any]:
    names = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in Settings.model_fields} | {"ARENA_CONFIG"}
    for variable in os.environ:
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in names:
            raise _unknown("environment", variable, names)
    plain = {name: os.environ[variable] for variable, name in _PLAIN_ENVIRONMENT.items() if os.environ.get(variable)}
    return {**plain, **EnvSettingsSource(Settings)()}


def _from_file(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    if not path.is_file():
        raise ArenaError("V2030", f"--config {path}: there is no such file", fix="check the path")
    try:
        return TomlConfigSettingsSource(Settings, toml_file=path).toml_data
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArenaError("V2030", f"{path}: {error}", fix="correct the line named here") from error


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment under which another process has these settings, keys included; tables stay in the file."""
    plain: dict[str, str] = {}
    for name in Settings.model_fields.keys() - {"upstreams", "budget"}:
        value = getattr(settings, name)
        value = value.get_secret_value() if isinstance(value, SecretStr) else value
        plain[f"{ENVIRONMENT_PREFIX}{name.upper()}"] = "" if value is None else str(value)
    return plain


def _unknown(source: str, name: str, known: Iterable[str]) -> ArenaError:
    """V2030 for an unknown name, with the nearest known one."""
    plain = {each.removeprefix(ENVIRONMENT_PREFIX): each for each in known}
    near = nearest(name.removeprefix(ENVIRONMENT_PREFIX), plain)
    fix = f"did you mean `{plain[near[0]]}`?" if near else lookup("V2030").remedy
    return ArenaError("V2030", f"{source}: unknown setting `{name}`", fix=fix)


def _shown(value: object) -> str:
    """A setting as people see it; of a secret that there is one."""
    if isinstance(value, SecretStr):
        return "(hidden)" if value.get_secret_value() else ""
    if isinstance(value, tuple):
        return redacted("; ".join(map(str, value)))
    return "" if value is None else redacted(str(value))
