"""What MkDocs does for mkdocs.yml: the site is made of the checkout's own pages, in their folders, and of references.

Every page keeps its place, so that one link serves the code host and the site. A link to something that is no page (a
folder, a file of code) becomes its name; one to nothing stays, and a strict build ends with it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page
from collections.abc import Callable, Iterator

import yaml
from msgspec import NODEFAULT
from msgspec.structs import fields
from typer.core import TyperArgument, TyperCommand, TyperGroup

from foundation.codes import CODES, Owner
from neurons.cli.app import COMMANDS, load_command
from neurons.health.metrics import Metrics
from neurons.settings.settings import ENVIRONMENT_PREFIX, Settings, abouts

ALERTS = Path(__file__).parents[2] / "docker" / "watch" / "alerts.yml"


def commands() -> str:
    """Every command with its help, arguments and options."""
    lines = ["# Commands", "", "Made from the program. `arena COMMAND --help` says the same.", ""]
    for entry in COMMANDS:
        lines += _of_command(f"arena {entry.name}", load_command(entry.name))
    return "\n".join(lines) + "\n"


def _of_command(name: str, command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield from (f"## {name}", "")
    for paragraph in (command.help or "").split("\n\n"):
        lines = paragraph.strip().splitlines()
        if lines and all(line.startswith(("$ ", "  ")) for line in lines):
            yield from ("```sh", *(line.removeprefix("$ ") for line in lines), "```", "")
        else:
            yield from (*(_plain(line) for line in lines), "")
    rows = [one for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        yield from ("| argument or option | default | says |", "|---|---|---|")
        for one in rows:
            names = [one.metavar or str(one.name).upper()] if isinstance(one, TyperArgument) else one.opts
            shown = ", ".join(f"`{each}`" for each in (*names, *one.secondary_opts))
            default = "required" if one.required else _default(one.default)
            yield f"| {shown} | {default} | {_cell(getattr(one, 'help', '') or '')} |"
        yield ""
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        if isinstance(inner, TyperCommand | TyperGroup) and (not inner.hidden or inner.name == "run"):
            yield from _of_command(f"{name} {inner.name}", inner)


def settings() -> str:
    """Every setting with its three spellings, default and meaning."""
    lines = ["---", "hide: [toc]", "---", "# Settings", "", "Made from the program. A flag comes before the"]
    lines += ["environment, that before `arena.toml`, that before the default; `arena validator --dry-run` prints each"]
    lines += ["value with its source.", ""]
    lines += ["| setting | flag | environment | default | says |", "|---|---|---|---|---|"]
    for name, default in ((field.name, field.default) for field in fields(Settings)):
        flag, says = f"--{name.replace('_', '-')}", _cell(abouts()[name])
        shown = "the system's" if default is NODEFAULT else _default(default)
        lines.append(f"| `{name}` | `{flag}` | `{ENVIRONMENT_PREFIX}{name.upper()}` | {shown} | {says} |")
    return "\n".join(lines) + "\n"


def codes() -> str:
    """Every code by whose failure it is: what happened, what it costs, what to do."""
    lines = ["# Codes", "", "Made from the program. `arena explain CODE` says the same. The first letter says whose"]
    lines += ["failure it is; only the agent's own count against it.", ""]
    for owner in Owner:
        lines += [f"## {owner.value.capitalize()}", "", "| code | what happened | what it costs | tried again | do |"]
        lines.append("|---|---|---|---|---|")
        for row in sorted(CODES.values(), key=lambda one: one.code):
            if row.owner is owner:
                again = "yes" if row.is_retryable else "no"
                lines.append(f"| {row.code} | {_cell(row.title)} | {_cell(row.cost)} | {again} | {_cell(row.remedy)} |")
        lines.append("")
    return "\n".join(lines)


def metrics() -> str:
    """Every metric with its labels and the alerts that read it."""
    lines = ["---", "hide: [toc]", "---", "# Metrics", "", "Made from the program. Served at `/metrics` of"]
    lines += ["`metrics_port`; moments are unix milliseconds. The runbook of each alert:"]
    lines += ["[operations](../operations.md#alerts).", ""]
    lines += ["| metric | kind | labels | says | alerts |", "|---|---|---|---|---|"]
    alerts = {
        rule["alert"]: str(rule["expr"])
        for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
        for rule in group["rules"]
    }
    held = Metrics()
    labels = {one._name: one._labelnames for one in vars(held).values() if hasattr(one, "_labelnames")}
    for family in held.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        asked = [alert for alert, rule in alerts.items() if re.search(rf"\b{name}(?:_sum|_count|_bucket)?\b", rule)]
        named = ", ".join(f"[{alert}](../operations.md#{alert.lower()})" for alert in asked)
        with_labels = ", ".join(f"`{label}`" for label in labels[family.name])
        lines.append(f"| `{name}` | {family.type} | {with_labels} | {_cell(family.documentation)} | {named} |")
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    if value is None or value is ... or callable(value):
        return ""
    return f"`{value}`" if str(value) not in ("", "False", "()") else ""


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """The text with angle brackets and brackets as signs, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;").replace("[", "\\[") for part in parts)


REFERENCES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "codes": codes,
    "metrics": metrics,
}


ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("docs", "docker", "examples", "foundation", "problems", "harness", "judge", "arena", "training", "neurons"),
    "tests/redteam",
)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_staged = tempfile.TemporaryDirectory(prefix="arena-docs-")


def pages() -> tuple[Path, ...]:
    """Every page of the site that is kept, relative to the checkout."""
    found = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]
    return tuple(sorted(path.relative_to(ROOT) for path in found))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay the pages out in a folder of their own and build from that."""
    folder = Path(_staged.name)
    for page in pages():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, folder / page)
    for name in ("docs/picture.svg", "docs/site.css", "docs/site.js"):
        shutil.copyfile(ROOT / name, folder / name)
    reference = folder / "docs" / "reference"
    reference.mkdir(exist_ok=True)
    for name, write in REFERENCES.items():
        (reference / f"{name}.md").write_text(write(), "utf-8")
    config.docs_dir = str(folder)
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with its links to code as plain names."""
    folder = Path(page.file.src_uri).parent

    def leads(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        place = (ROOT / folder / target).resolve()
        if place.is_dir() and (place / "README.md").exists() and is_page(place / "README.md"):
            return f"[{text}]({target.rstrip('/')}/README.md{anchor})"
        return text if place.exists() and not is_page(place) else match[0]

    return LINK.sub(leads, re.sub(r"^```(\w+) needs=\w+$", r"```\1", markdown, flags=re.MULTILINE))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The page with a name for the theme's search, which readers of screens would meet as a nameless dialog."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def is_page(place: Path) -> bool:
    """Whether the site holds that file of the checkout."""
    return place.is_relative_to(ROOT) and place.relative_to(ROOT) in (*pages(), Path("docs/picture.svg"))


def on_shutdown() -> None:
    """Remove what was laid out."""
    _staged.cleanup()
