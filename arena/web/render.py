"""Pages as HTML: templates, and the stylesheet and script that they ask for.

Everything put in is escaped, and a template that names what is not there fails.
"""

from __future__ import annotations

import functools
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from arena.web.reading import moment, sentence
from judge.neutral import neutral_name

STATIC = {
    "site.css": "text/css; charset=utf-8",
    "site.js": "text/javascript; charset=utf-8",
    "verify_proof.py": "text/x-python; charset=utf-8",
}


@functools.cache
def _templates() -> Environment:
    """The templates of the pages, and the parts that they share with static traces (`arena.view`)."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader("arena.web"), PackageLoader("arena.view", "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = moment
    made.filters["pair"] = lambda text: (text, text)
    made.filters["sentence"] = sentence
    made.filters["name"] = lambda text: neutral_name(text).strip()
    made.filters["share"] = lambda value_e4: f"{value_e4 / 10_000:.4f}"
    made.filters["percent"] = lambda value_e4: f"{value_e4 / 100:.1f}\u00a0%"
    made.filters["short"] = lambda text: f"{text[:6]}…{text[-4:]}" if len(text) > 14 else text
    made.filters["usd"] = lambda micro: f"${micro / 1e6:.4f}"
    return made


def render_page(name: str, **values: object) -> bytes:
    """The page of a template with these values."""
    return _templates().get_template(f"{name}.html.j2").render(**values).lstrip().encode("utf-8", "replace")


@functools.cache
def static_file(name: str) -> bytes:
    """A file of `STATIC`: the stylesheet is also that of static traces; the program is what checks proofs elsewhere."""
    if name == "site.css":
        return (files("arena.view") / "looks.css").read_bytes() + (files("arena.web") / "static" / name).read_bytes()
    if name == "verify_proof.py":
        return (files("arena.records.verify") / name).read_bytes()
    return (files("arena.web") / "static" / name).read_bytes()
