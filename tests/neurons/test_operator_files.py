"""A node and the operator's files: started with settings alone, completed by a release, told of what waits."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import structlog
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.chain.keys import keypair_signer
from arena.chain.local import LocalSubtensor
from arena.exchange.operator_files import Operator
from arena.gate.likeness import encode_sketch, make_sketch
from arena.policies import DEMO
from arena.race.machine import RaceClosed, RaceOpened, encode_event, replay
from foundation.errors import ArenaError
from neurons.cli.app import app
from neurons.health.metrics import Metrics
from neurons.loops.node import Sharing
from neurons.loops.operator_files import OperatorFiles, held_sketches, open_releases, released_policy, with_held_release
from neurons.settings.inputs import policy_of
from neurons.settings.settings import Settings, resolve
from tests.arena import exchange_stand, operator_stand
from tests.arena.exchange_stand import LocalPeers
from tests.arena.operator_stand import HOUR_MS, NETUID, NOW_MS, OPERATOR_KEY, make_folder, publish_folder, seal
from tests.arena.race_stand import batch

TAO_RAO = 1_000_000_000
OTHER = replace(DEMO, name="later")


class World:
    """A validator that has the files, and a new one with settings alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.signer = folder, keypair_signer("//Second")
        self.giver = exchange_stand.Node(folder / "giver", {self.signer.hotkey}, signer=keypair_signer("//First"))
        self.names = make_folder(folder / "files")
        self.peers = LocalPeers(self.signer.hotkey)
        self.peers.services = {self.giver.hotkey: self.giver.desk}
        self.state_dir = folder / "second"
        self.chain = LocalSubtensor(
            folder / "chain.sqlite", now_ms=lambda: NOW_MS, netuid=NETUID, owner=OPERATOR_KEY.hotkey
        )
        self.sharing = Sharing(
            listener=None, store=None, auth=None, peers=self.peers, peer_logs=self.giver.held, puller=None, endpoint="",
        )  # type: ignore[arg-type]  # fmt: skip
        self.metrics = Metrics()

    async def enrol(self) -> None:
        for signer in (self.giver.signer, self.signer):
            await self.chain.register(signer)
            await self.chain.set_stake(signer.hotkey, 5_000 * TAO_RAO)
        await self.chain.publish(self.giver.signer, "http://127.0.0.1:9")

    def settings(self, **flags: object) -> Settings:
        return resolve({"state_dir": self.state_dir, "operator_hotkey": OPERATOR_KEY.hotkey, **flags}).settings

    def files(self, settings: Settings) -> OperatorFiles:
        """What a node that begins now has of the operator's."""
        operator = Operator(hotkey=OPERATOR_KEY.hotkey, netuid=NETUID)
        return OperatorFiles(settings, operator, self.signer.hotkey, self.chain, self.sharing, self.metrics)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    made = World(tmp_path)
    await made.enrol()
    return made


async def test_a_node_with_settings_alone_waits_and_then_starts_under_the_operators_policy(world: World) -> None:
    waited: list[float] = []

    async def publish_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        publish_folder(world.giver.releases, world.folder / "files")

    files = world.files(world.settings())
    settings = await files.start(None, publish_meanwhile)
    assert waited == [1.0]
    assert policy_of(settings).policy_sha256 == DEMO.policy_sha256 and not (await files.turn()).policy_waits
    assert settings.bank_hotkey == OPERATOR_KEY.hotkey
    placed = {path.name for folder in ("suites", "bank") for path in (world.state_dir / folder).iterdir()}
    assert placed == world.names - {"policy.json"}
    assert {path.stat().st_mode & 0o077 for path in (world.state_dir / "bank").iterdir()} == {0}
    assert with_held_release(world.settings()) == settings  # what doctor and stock look at


@pytest.mark.parametrize(("events", "expected"), [(1, OTHER), (2, DEMO)])
async def test_a_race_past_its_close_is_finished_under_its_own_policy(world: World, events: int, expected) -> None:
    (world.folder / "files" / "policy.json").write_bytes(msgspec.json.encode(OTHER))
    publish_folder(world.giver.releases, world.folder / "files")
    opened = RaceOpened(
        race_id="race-000001", policy=DEMO, policy_sha256=DEMO.policy_sha256, batch=batch(), opened_ms=1, closes_ms=2
    )
    story = (opened, RaceClosed(closing_block=5, beacon_network="local", beacon_round=1))[:events]
    files = world.files(world.settings())
    settings = await files.start(replay("race-000001", [encode_event(event) for event in story]))
    assert policy_of(settings) == expected
    assert (await files.turn()).policy_waits == ("" if expected is OTHER else OTHER.policy_sha256)


async def test_a_running_node_takes_batches_at_once_and_says_that_a_policy_waits(world: World) -> None:
    publish_folder(world.giver.releases, world.folder / "files")
    loop = world.files(world.settings())
    await loop.start(None)
    with structlog.testing.capture_logs() as first:
        facts = await loop.turn()
    assert (facts.sequence, facts.lacking, facts.policy_waits, first) == (1, 0, "", [])
    (later,) = seal(world.folder / "more", [NOW_MS + 3 * HOUR_MS], seed=2)
    (world.folder / "more" / "policy.json").write_bytes(msgspec.json.encode(OTHER))
    publish_folder(world.giver.releases, world.folder / "more")
    with structlog.testing.capture_logs() as said:
        facts = await loop.turn()
        assert await loop.turn() == facts
    assert (world.state_dir / "bank" / later).is_file()
    assert (facts.sequence, facts.policy_waits) == (2, OTHER.policy_sha256)
    waiting = [line for line in said if line.get("code") == "V2104"]
    assert [line["released"] for line in waiting] == [OTHER.policy_sha256[:12]]
    assert world.metrics.registry.get_sample_value("arena_policy_waits") == 1


def test_a_policy_that_an_earlier_release_wrote_is_read_and_one_of_later_rules_is_refused(tmp_path: Path) -> None:
    path, store, said = tmp_path / "policy.json", open_releases(tmp_path), msgspec.to_builtins(DEMO)
    path.write_bytes(msgspec.json.encode(said | {"embargo": {}}))
    assert released_policy(store, operator_stand.release_of(operator_stand.keep(store, "policy", path)).release) == DEMO
    path.write_bytes(msgspec.json.encode(said | {"later_ms": 1}))
    with store.locked(), pytest.raises(ArenaError, match="V2105"):
        released_policy(store, operator_stand.release_of(store.add("policy", path.name, path)).release)


def arena(*arguments: object) -> tuple[int, str, Exception | None]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.exception if isinstance(done.exception, ArenaError) else None


def test_publish_and_releases_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = make_folder(tmp_path / "files")
    state, key = ("--state-dir", tmp_path / "state"), ("--wallet.hotkey", "//Operator")
    assert "no release in" in arena("operator", "publish", *state)[1]
    refused = arena("operator", "publish", tmp_path / "files", "--policy", "agentic", *state, *key)[2]
    assert refused is not None and "two policy files" in refused.failure.detail  # the folder has one of its own
    (tmp_path / "files" / "policy.json").unlink()
    template, files = tmp_path / "template.py", tmp_path / "files"
    template.write_text("def secret_recipe(")
    assert arena("operator", "publish", template, *state, *key)[2].failure.code == "V2105"
    template.write_text("def secret_recipe(x):\n    return x.strip().title()\n")
    code, said, _ = arena("operator", "publish", files, template, "--policy", "agentic", *state, *key)
    assert code == 0
    assert f"left out: {tmp_path / 'files' / 'bank.jsonl'}" in said and OPERATOR_KEY.hotkey in said
    code, said, _ = arena("operator", "publish", "--json", *state)
    row = json.loads(said)
    assert (code, row["release"], row["missing"], row["signer"]) == (0, 1, 0, OPERATOR_KEY.hotkey)
    assert {file["name"] for file in row["files"]} == names | {"template.sketch"}
    settings = with_held_release(resolve({"state_dir": tmp_path / "state"}).settings)
    kept = (tmp_path / "state" / "sketches" / "template.sketch").read_bytes()
    assert b"secret_recipe" not in kept and kept == encode_sketch(make_sketch(template.read_bytes()))
    assert [encode_sketch(one) for one in held_sketches(settings)] == [kept]
    assert policy_of(settings).name == "agentic"
    store = open_releases(tmp_path / "state")
    batch_file = next(file for file in store.newest().release.files if file.kind == "batch")
    store.path_of(batch_file).unlink()
    said = arena("operator", "publish", *state)[1]
    assert f"{batch_file.name}  MISSING" in said and "1 missing in" in said
    refused = arena("operator", "publish", tmp_path / "files" / "bank.jsonl", *state, *key)[2]
    assert refused is not None and refused.failure.code == "V2105"
