"""What an export says beside its log: names, sources, policies, costs and the card, whose blocks run. Each byte is held
against the log: any changed, lost or swapped part is found, whatever hashes it was given."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import msgspec
import pytest
import zstandard

from arena.chain.keys import verify
from arena.export.agents import AgentRow
from arena.export.card import render_card
from arena.export.files import CHECKSUM, MANIFEST, SIGNATURE, describe, read_lines, read_manifest, write_manifest
from arena.export.libraries import Libraries
from arena.export.model import FORMATS, Filters, Format, Manifest
from arena.export.verification import verify_export
from foundation.canonical import canonical_bytes, text_hash
from foundation.errors import ArenaError
from tests.arena.export_stand import (
    DAY_MS,
    SEASON_MS,
    SOURCES,
    AgentsLog,
    ExportLog,
    export,
    leaky_episode,
    opens_ms,
    promotion,
    released_race,
    replace,
    season,
)
from tests.arena.log_stand import START_MS, release
from tests.arena.race_stand import policy as race_policy
from tests.arena.race_stand import race_events
from tests.keys import generate_signer


def agents(folder: Path) -> dict[str, AgentRow]:
    rows = [msgspec.json.decode(line, type=AgentRow) for line in (folder / "agents.jsonl").read_bytes().splitlines()]
    return {row.agent_version_id[:2]: row for row in rows}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("season") / "out"
    export(season(), folder, now_ms=SEASON_MS, formats=("jsonl", "parquet", "messages"))
    return folder


def test_each_agent_has_its_name_and_says_whether_its_source_is_open(whole: Path) -> None:
    assert verify_export(whole, verify).wrong == ()
    found = agents(whole)
    assert {short: (row.name, row.source, row.trajectories) for short, row in found.items()} == {
        "a1": ("lamp-finder", "here", 3),
        "b2": ("budget-first", "embargo", 1),
        "c3": ("plain", "not_promoted", 2),
        "d4": ("leaky", "secret", 2),
    }
    winner, coming, plain = found["a1"], found["b2"], found["c3"]
    assert winner.embargo_ends_ms == opens_ms(START_MS) <= SEASON_MS < opens_ms(SEASON_MS) == coming.embargo_ends_ms
    assert coming.embargo_ends and coming.embargo_ends.endswith("+00:00") and coming.file is None
    assert (plain.embargo_ends_ms, plain.promoted_race_id, plain.licence) == (None, None, None)
    assert (winner.promoted_race_id, winner.miner_hotkey) == ("r2", "5a1")


@pytest.mark.parametrize(("early_ms", "expected"), [(1, "embargo"), (0, "here")])
def test_a_source_opens_at_the_end_of_the_embargo_and_not_before(tmp_path: Path, early_ms: int, expected: str) -> None:
    manifest = export(season(), tmp_path, now_ms=opens_ms(START_MS) - early_ms)
    assert manifest.exported_ms == opens_ms(START_MS) - early_ms
    assert agents(tmp_path)["a1"].source == expected
    assert verify_export(tmp_path, verify).is_ok


def test_a_promotion_of_a_race_that_is_not_released_opens_nothing_and_is_not_told(tmp_path: Path) -> None:
    log = AgentsLog()
    log.run(1, "r1", "a1", "cheap")
    log.win("r1", "c3", START_MS)
    log.win("r2", "a1", START_MS, is_released=False)
    log.checkpoint()
    export(log, tmp_path, now_ms=SEASON_MS)
    assert (agents(tmp_path)["a1"].source, agents(tmp_path)["a1"].promoted_race_id) == ("not_promoted", None)
    assert verify_export(tmp_path, verify).is_ok


def test_a_source_that_is_not_kept_or_not_the_recorded_one_is_said_to_be_missing(tmp_path: Path) -> None:
    log = season()
    log.sources["a1" * 32] = "def agent_main(problem):\n    return None\n"
    export(log, tmp_path, now_ms=SEASON_MS)
    assert (agents(tmp_path)["a1"].source, (tmp_path / "agents").exists()) == ("missing", False)
    assert verify_export(tmp_path, verify).is_ok


def test_a_promotion_without_a_quorum_opens_no_source(tmp_path: Path) -> None:
    """It stands in the log before it is known whether others settled alike."""
    log, own = season(), promotion("r2", "a1", START_MS)
    void = replace(own, state="cancelled", reason="no quorum")
    log.streams["race/r2"] = race_events(race_policy(), START_MS, own, void)
    export(log, tmp_path, now_ms=SEASON_MS)
    assert (agents(tmp_path)["a1"].source, (tmp_path / "agents").exists()) == ("missing", False)
    assert verify_export(tmp_path, verify).is_ok


# -- forgery: the manifest is written again, so that every hash fits

Forge = Callable[[Path], None]


def rewritten(change: Callable[[list[dict[str, object]]], None]) -> Forge:
    def forge(folder: Path) -> None:
        rows = [json.loads(line) for line in (folder / "agents.jsonl").read_bytes().splitlines()]
        change(rows)
        (folder / "agents.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))

    return forge


def opened_early(folder: Path) -> None:
    """A source under embargo put in, as if it were open."""
    source = f"agents/{text_hash(SOURCES['b2'])}.py"
    (folder / source).write_text(SOURCES["b2"], "utf-8")
    rewritten(lambda rows: rows[1].update(source="here", file=source, licence=rows[0]["licence"]))(folder)


FORGERIES: dict[str, Forge] = {
    "another name": rewritten(lambda rows: rows[0].update(name="renamed")),
    "an earlier end": rewritten(lambda rows: rows[1].update(embargo_ends_ms=START_MS)),
    "an agent dropped": rewritten(lambda rows: rows.pop()),
    "a closed source left out with an excuse": rewritten(lambda rows: rows[1].update(source="missing")),
    "opened early": opened_early,
    "another source": lambda folder: next((folder / "agents").iterdir()).write_text("def agent_main(problem): ..."),
    "a policy that is no longer itself": lambda folder: next((folder / "policies").iterdir()).write_text("{}"),
    "a card of its own": lambda folder: (folder / "README.md").write_text("# Trust me\n"),
}


def test_what_does_not_follow_from_the_log_is_found_though_every_hash_fits(whole: Path, tmp_path: Path) -> None:
    manifest = read_manifest(whole)
    for name, forge in FORGERIES.items():
        folder = Path(shutil.copytree(whole, tmp_path / name))
        forge(folder)
        write_manifest(folder, described_again(folder, manifest))
        assert verify_export(folder, verify).wrong, name
    later = Path(shutil.copytree(whole, tmp_path / "later"))  # a moment claimed without the sources that it opens
    write_manifest(later, replace(manifest, exported_ms=SEASON_MS + 30 * DAY_MS))
    assert verify_export(later, verify).wrong


def described_again(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest with the files as they are now, in its own order, those it did not name at the end; unsigned."""
    (folder / SIGNATURE).unlink(missing_ok=True)
    places = [file.path for file in manifest.files if (folder / file.path).exists()]
    present = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    rows = {file.path: file.rows for file in manifest.files}
    files = []
    for path in dict.fromkeys([*places, *(one for one in present if one not in UNNAMED)]):
        files.append(describe(folder, folder / path, rows.get(path, 0)))
    return replace(manifest, files=tuple(files))


SHOWN: dict[str, tuple[Format, ...]] = {"whole": FORMATS, "tables": ("jsonl", "parquet"), "log": ("jsonl",)}
PROGRAM = """
import json, os, sys
from pathlib import Path
for folder, blocks in json.loads(sys.stdin.read()):
    os.chdir(folder)
    for block in blocks:
        exec(compile(block, f"{folder}/README.md", "exec"), {"__name__": "__main__"})
from datasets import load_dataset
for name in (sys.argv[1:], ["json", None, None, sys.argv[1] + "/agents.jsonl"]):
    rows = load_dataset(*name)
    print("loaded", {split: len(part) for split, part in rows.items()}, sorted(rows["train"].features)[0])
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name, exports of one season."""
    log, room = season(), tmp_path_factory.mktemp("cards")
    for name, formats in SHOWN.items():
        export(log, room / name, now_ms=SEASON_MS, formats=formats, signer=log.signer, rows_per_shard=4)
    return {name: room / name for name in SHOWN}


def card(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def test_the_card_says_under_which_terms_traces_may_be_used(folders: dict[str, Path]) -> None:
    assert "license: other" in (told := card(folders["log"])) and "states its licence here" in told
    manifest = read_manifest(folders["log"])
    told = render_card(manifest, (), dict.fromkeys(manifest.policies, "CC-BY-4.0"))
    assert "license: cc-by-4.0" in told and "may be used under: CC-BY-4.0." in told


def test_what_libraries_find_is_counted_and_said_on_the_card(tmp_path: Path) -> None:
    told = f"ann@shop.example, +44 20 7946 0958, lamp 2000082388, sk_live_{'aB3dE5gH' * 3}, {'0f' * 32}"
    log = ExportLog()
    leaky_episode(log, told)
    log.add([release("r1", [1])])
    log.checkpoint()
    found = export(log, tmp_path / "out", libraries=Libraries()).libraries
    assert {name.partition(" ")[0]: counts for name, counts in found.items()} == {
        "datafog-core": {"email": 1, "phone": 1},
        "detect-secrets": {"Stripe Access Key": 1},
    }
    assert f"| private data found by {next(iter(found))}, left in | `email 1`, `phone 1` |" in card(tmp_path / "out")
    assert verify_export(tmp_path / "out", verify).is_ok
    assert export(log, tmp_path / "without").libraries is msgspec.UNSET
    assert "private data" not in card(tmp_path / "without") and verify_export(tmp_path / "without", verify).is_ok


def blocks(folder: Path, language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (folder / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def surroundings(home: Path) -> dict[str, str]:
    """No network, and our commands before all others."""
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home), "HOME": str(home)}
    return {**os.environ, **offline, "PATH": commands, "ARENA_STATE_DIR": str(home / "state")}


def test_every_python_block_of_every_card_runs_and_both_tables_load(folders: dict[str, Path], tmp_path: Path) -> None:
    told = [(str(folders[name]), blocks(folders[name], "python")) for name in ("whole", "log")]
    assert [len(each) for _, each in told] == [4, 0]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folders["tables"])],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        env=surroundings(tmp_path),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("8 episodes, 7 of them written by the model throughout") == 1
    assert "lamp-finder" in done.stdout and "plain 1 success" in done.stdout
    assert "Ignoring" not in done.stderr
    assert "loaded {'train': 8} agent_ms" in done.stdout
    assert "loaded {'train': 4} agent_version_id" in done.stdout


# -- what each agent solved and cost, from the export alone

EXPECTED = {  # agent, models -> episodes, agentic, solved, prompt tokens, unpriced, usd, usd per solved
    ("leaky", "dear"): (2, 1.0, 2, 2_000, 0, 0.028, 0.014),
    ("lamp-finder", "cheap"): (3, 1.0, 2, 3_000, 0, 0.000_42, 0.000_21),
    ("budget-first", "cheap"): (1, 1.0, 1, 1_000, 0, 0.000_14, 0.000_14),
    ("plain", "ours"): (2, 0.5, 1, 2_000, 2, None, None),
    ("all", "all"): (8, 0.875, 6, 8_000, 2, None, None),
}


@pytest.mark.parametrize("name", ["whole", "tables"])
def test_the_cards_query_has_the_rows_of_the_papers_table(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (query,) = blocks(folders[name], "sql")
    monkeypatch.chdir(folders[name])
    table = duckdb.connect().sql(query)
    found = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    assert list(found[0])[:7] == ["agent", "models", "episodes", "agentic_share", "solved", "unscored", "asr"]
    kept = ("episodes", "agentic_share", "solved", "prompt_tokens", "unpriced", "usd", "usd_per_solved")
    assert {(row["agent"], row["models"]): tuple(row[column] for column in kept) for row in found} == EXPECTED
    by_agent = {row["agent"]: row for row in found}
    assert found[-1]["agent"] == "all" and by_agent["lamp-finder"]["asr"] == 66.7
    assert (by_agent["leaky"]["against_dearest"], by_agent["lamp-finder"]["against_dearest"]) == (1.0, 0.015)
    assert (by_agent["lamp-finder"]["median_s"], by_agent["budget-first"]["median_s"]) == (2.0, None)


# -- front matter and figures


def test_the_card_names_agents_and_says_of_each_source_where_it_is(folders: dict[str, Path]) -> None:
    said = card(folders["tables"])
    rows = dict(re.findall(r"^\| ([\w-]+) \| `[0-9a-f]{12}` \| .* \| (.*) \|$", said, re.MULTILINE))
    assert re.fullmatch(r"\[source\]\(agents/[0-9a-f]{64}\.py\)", rows["lamp-finder"])
    assert re.fullmatch(r"under embargo until 2026-\d\d-\d\d 19:00 UTC", rows["budget-first"])
    assert rows["plain"] == "its miner's: no promotion opened it"
    assert rows["leaky"] == "left out: holds what looks like a credential"
    links = re.findall(r"\]\(([^)]+)\)", said)
    assert links and all((folders["tables"] / link).is_file() for link in links)


PLACES_PER_FILE = 3
UNNAMED = {MANIFEST, CHECKSUM, SIGNATURE}  # what is wrong with one of these is said of the manifest


def kind_of(path: str) -> str:
    """The kind of file a path of an export is."""
    if path.startswith("views/verifiers/"):
        return f"views/verifiers/{path.rsplit('/', 1)[1]}"
    if path.count("/") == 0 or path.endswith("README.md"):
        return path
    return path.rsplit("/", 1)[0]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed export that holds every kind of file: it begins at a signed checkpoint, in the middle of a log, some of
    its rows go out under an earlier release, one had a credential removed, and the source of one agent is open."""
    folder, log = tmp_path_factory.mktemp("export"), AgentsLog()
    released_race(log, "r0", [7])
    log.checkpoint()
    first = export(log, folder / "first")
    log.add_episode(7, "r0", agent="b7")
    leaky_episode(log)
    released_race(log, "r1", [1, 2, 3])
    log.run(1, "r1", "c3", "cheap")
    log.add([promotion("r1", "c3", START_MS)])
    options = {"signer": log.signer, "formats": FORMATS, "rows_per_shard": 3, "now_ms": SEASON_MS}
    export(log, folder / "sound", start=first.cursor, **options)
    assert verify_export(folder / "sound", verify).wrong == ()
    return folder / "sound"


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def is_named(folder: Path, path: str) -> bool:
    """Whether verification finds this file wrong, first of all, and says so by its name."""
    report = verify_export(folder, verify)
    assert not report.is_ok, path
    return report.wrong[0].place == (MANIFEST if path in UNNAMED else path)


def test_a_changed_byte_of_any_file_is_found_and_the_file_named(copy: Path) -> None:
    rng = random.Random(11)
    for path in files(copy):
        content = (copy / path).read_bytes()
        for place in {0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(PLACES_PER_FILE))}:
            changed = bytearray(content)
            changed[place] ^= 1 << rng.randrange(8)
            (copy / path).write_bytes(changed)
            assert is_named(copy, path), (path, place)
        (copy / path).write_bytes(content)


def test_any_other_file_is_found_under_a_fitting_manifest(copy: Path) -> None:
    """Of each kind one, with the bytes of another: what does not follow from the log is found by making it again."""
    kinds = {kind_of(path): path for path in files(copy) if path not in UNNAMED}
    for path, other in zip(kinds.values(), [*list(kinds.values())[1:], MANIFEST], strict=True):
        manifest, content = read_manifest(copy), (copy / path).read_bytes()
        (copy / path).write_bytes((copy / other).read_bytes())
        named = described_again(copy, manifest).files
        odd = tuple(replace(file, rows=1) if file.path == path else file for file in named)
        write_manifest(copy, replace(manifest, files=odd))
        assert not verify_export(copy, verify).is_ok, path
        (copy / path).write_bytes(content)
        write_manifest(copy, manifest)


def test_a_whole_row_of_a_race_that_is_not_released_is_found(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1", [1])
    log.checkpoint()
    export(log, tmp_path)
    path = "log/000000.jsonl.zst"
    lines = list(read_lines(tmp_path / path))
    hidden = msgspec.json.decode(lines[3]) | {"content": None, "withheld": "secret"}  # the release itself
    made = b"".join(line + b"\n" for line in [*lines[:3], msgspec.json.encode(hidden)])
    (tmp_path / path).write_bytes(zstandard.ZstdCompressor().compress(made))
    manifest = described_again(tmp_path, read_manifest(tmp_path))
    write_manifest(tmp_path, replace(manifest, withheld={"secret": 1}))
    assert "it is whole and should be withheld: unreleased" in verify_export(tmp_path, verify).wrong[0].detail


def test_what_is_no_export_is_refused_and_another_signer_shown(copy: Path, tmp_path: Path) -> None:
    stranger = generate_signer()
    write_manifest(copy, read_manifest(copy), stranger)
    assert verify_export(copy, verify).signer == stranger.hotkey
    assert verify_export(tmp_path / "none", verify).wrong[0].place == MANIFEST
    manifest = (copy / MANIFEST).read_bytes()
    numbers = [re.sub(rb'"trajectories":\d+', b'"trajectories":%d' % huge, manifest) for huge in (2**53, 10**30)]
    versions = [manifest.replace(b'"version":1', b'"version":%d' % version) for version in (0, 2)]
    for content in (b"{}", *numbers, *versions):
        assert content != manifest
        (copy / MANIFEST).write_bytes(content)
        (copy / CHECKSUM).write_text(f"{hashlib.sha256(content).hexdigest()}  {MANIFEST}\n")
        assert verify_export(copy, verify).wrong[0].place == MANIFEST
        with pytest.raises(ArenaError, match="V2095"):
            read_manifest(copy)


def test_rows_that_the_stated_request_keeps_back_are_found(copy: Path) -> None:
    (copy / SIGNATURE).unlink()
    manifest = read_manifest(copy)
    for request, words in (
        (replace(manifest.request, row_bytes_max=10), "should be withheld: oversize"),
        (replace(manifest.request, pools=("eval",)), "should be withheld: pool"),
        (replace(manifest.request, filters=Filters(buckets=("shop",))), "should be withheld: filter"),
        (replace(manifest.request, filters=Filters(agents=("nobody",))), "should be withheld: filter"),
    ):
        write_manifest(copy, replace(manifest, request=request))
        assert words in verify_export(copy, verify).wrong[0].detail


# What only the exporter can know: who made it, what an earlier export brought, the block the chain names; and filters
# and limits that leave out nothing of this export.
EXPORTERS_WORD = (
    ("exported_ms",),  # as long as no embargo ends in between
    ("software",),
    ("log", "anchor_block"),
    ("log", "start", "exported_to"),
    ("request", "filters"),
    ("request", "rows_per_shard"),
    ("request", "row_bytes_max"),
)


def leaves(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the scalars of a JSON value stand; of a list in its first and last part."""
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value))[:: max(1, len(value) - 1)]:
            yield from leaves(value[name], (*place, name))
    else:
        yield place


def altered(value: str | int | bool) -> str | int | bool:
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return not value if isinstance(value, bool) else value + 1


def test_any_altered_field_of_the_manifest_is_found_under_a_fitting_checksum(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST).read_bytes())
    (copy / SIGNATURE).unlink()
    for place in list(leaves(manifest)):
        if any(place[: len(word)] == word for word in EXPORTERS_WORD):
            continue
        parent = functools.reduce(lambda value, name: value[name], place[:-1], manifest)
        stated, parent[place[-1]] = parent[place[-1]], altered(parent[place[-1]])
        content = canonical_bytes(manifest)
        (copy / MANIFEST).write_bytes(content)
        (copy / CHECKSUM).write_text(f"{hashlib.sha256(content).hexdigest()}  {MANIFEST}\n")
        assert not verify_export(copy, verify).is_ok, place
        parent[place[-1]] = stated
