"""The figures of one commit, as values and as tables. Definitions: docs/structure.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.structure.product import Product, citations, lines_of, statements
from tests.structure.trip import Called

FIRST_EDITION = msgspec.json.decode(Path(__file__).with_name("first_edition.json").read_bytes())

# Ceilings of lines by folder; a row's second part is what is not counted to it.
CEILINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "foundation": (("foundation/",), (), 1_300),
    "problems": (("problems/",), (), 3_000),
    "harness/catalogue": (("harness/catalogue/",), (), 2_900),
    "harness/emission": (("harness/emission",), (), 900),
    "harness/inference": (("harness/inference/",), (), 1_900),
    "harness/sandbox": (("harness/sandbox/",), (), 3_700),
    "harness, the rest": (
        ("harness/",),
        ("harness/catalogue/", "harness/emission", "harness/inference/", "harness/sandbox/"),
        2_000,
    ),
    "judge": (("judge/",), (), 2_800),
    "arena/gate": (("arena/gate/",), (), 2_200),
    "arena/export, view": (("arena/export/", "arena/view"), (), 3_800),
    "arena/policy, evaluate, visibility": (("arena/polic", "arena/evaluate", "arena/visibility", "arena/__"), (), 900),
    "arena/race, bank": (("arena/race/", "arena/bank/"), (), 4_400),
    "arena/api, web, door, sn15": (("arena/api/", "arena/web/", "arena/door/", "arena/sn15/"), (), 4_800),
    "arena/exchange, records, submissions": (
        ("arena/exchange/", "arena/records/", "arena/submissions", "arena/sync"),
        (),
        4_000,
    ),
    "arena/chain": (("arena/chain/",), (), 2_300),
    "arena/store": (("arena/store/",), (), 2_600),
    "training/corpus": (("training/corpus/",), (), 4_200),
    "training/trac, rewriting": (("training/trac/", "training/rewriting/", "training/study/"), (), 1_800),
    "training, the rest": (
        ("training/",),
        ("training/corpus/", "training/trac/", "training/rewriting/", "training/study/"),
        5_800,
    ),
    "neurons/cli": (("neurons/cli/",), (), 5_500),
    "neurons, the rest": (("neurons/",), ("neurons/cli/",), 6_800),
}


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """What one submission's way to a training row touches; `steps` by command: files and functions."""

    files: int
    functions: int
    steps: dict[str, tuple[int, int]]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The measures that may only fall."""

    lines: int
    files: int
    statements: int
    test_lines: int
    study_lines: int
    document_words: int
    commands: int
    options: int
    settings: int
    policy_fields: int
    codes: int
    citations: int


SURFACE = """
import json
from typer.core import TyperGroup
from arena.policy import Policy
from foundation.codes import CODES
from neurons.cli.app import COMMANDS, load_command
from neurons.settings.settings import Settings
import msgspec

def count(command):
    if isinstance(command, TyperGroup):
        each = [count(child) for child in command.commands.values()]
        return sum(c for c, _ in each), sum(o for _, o in each)
    return 1, sum(1 for p in command.params if p.param_type_name == "option" and p.name != "help")

def fields(kind):
    found = 0
    for field in msgspec.structs.fields(kind):
        inner = field.type if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) else None
        found += fields(inner) if inner else 1
    return found

each = [count(load_command(entry.name)) for entry in COMMANDS]
print(json.dumps({"commands": sum(c for c, _ in each), "options": sum(o for _, o in each),
    "settings": len(msgspec.structs.fields(Settings)), "policy_fields": fields(Policy), "codes": len(CODES)}))
"""


def measure(product: Product) -> Figures:
    """Everything but the trip; a process of its own loads the commands, settings and codes."""
    root = product.root
    surface = subprocess.run([sys.executable, "-c", SURFACE], cwd=root, capture_output=True, text=True, check=True)
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *(page for r in product.roots for page in r.rglob("*.md"))]
    return Figures(
        lines=lines_of(product),
        files=len(product.files),
        statements=statements(product),
        test_lines=lines_under(root / "tests"),
        study_lines=lines_under(root / "studies"),
        document_words=sum(len(re.findall(r"\S+", page.read_text("utf-8"))) for page in pages),
        citations=len(citations(product)),
        **json.loads(surface.stdout),
    )


def lines_under(folder: Path) -> int:
    """Lines of the Python files under a folder."""
    return sum(path.read_text("utf-8").count("\n") for path in folder.rglob("*.py"))


def figures_of(called: dict[str, set[Called]]) -> Trip:
    """The trip's figures."""
    every = set().union(*called.values())
    steps = {step: (len({one.file for one in found}), len(found)) for step, found in called.items()}
    return Trip(files=len({one.file for one in every}), functions=len(every), steps=steps)


def table(figures: Figures, trip: Trip | None) -> str:
    """One line a figure: at the first edition, now, and the goal."""
    goals = FIRST_EDITION["goals"]
    rows = [(name, FIRST_EDITION["figures"].get(name), getattr(figures, name)) for name in figures.__struct_fields__]
    if trip is not None:
        before = FIRST_EDITION["trip"]
        rows += [("trip files", before["files"], trip.files), ("trip functions", before["functions"], trip.functions)]
    lines = ["| figure | first edition | now | goal |", "|---|--:|--:|--:|"]
    lines += [
        f"| {name.replace('_', ' ')} | {show(was)} | {now:,} | {show(goals.get(name))} |" for name, was, now in rows
    ]
    if trip is not None:
        lines += [f"| trip: {step} | | {files}, {calls} | |" for step, (files, calls) in trip.steps.items()]
    return "\n".join(lines)


def folders(product: Product) -> str:
    """One line a folder: lines at the first edition, now, and the ceiling."""
    lines = ["| folder | first edition | now | at most |", "|---|--:|--:|--:|"]
    for name, (prefixes, but, most) in CEILINGS.items():
        now = lines_of(product, prefixes, but)
        lines.append(f"| {name} | {show(FIRST_EDITION['folders'].get(name))} | {now:,} | {most:,} |")
    return "\n".join(lines)


def show(number: int | None) -> str:
    """A number with thousands set off, or nothing."""
    return "" if number is None else f"{number:,}"
