"""Traces as static pages: one file a trace, with nothing loaded from anywhere and no script.

A pure function of view values. Everything put in is escaped, names of files are ours, and the page forbids
itself any request (Content-Security-Policy).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from arena.view.reading import TraceView


@functools.cache
def page_templates() -> Environment:
    """The templates of this folder: escaped, and nothing may be missing. `parts.html.j2` holds what pages share."""
    return Environment(
        loader=PackageLoader("arena.view", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def trace_page(view: TraceView, *, has_index: bool = False) -> str:
    """The page of one trace. `has_index`: it stands beside an `index.html`."""
    return page_templates().get_template("trace.html.j2").render(view=view, has_index=has_index).lstrip()


def trace_pages(title: str, views: Sequence[TraceView]) -> dict[str, str]:
    """File name to content: one trace alone is `index.html`, several have a page each and an index of them."""
    if len(views) == 1:
        return {"index.html": trace_page(views[0])}
    names = [f"trace-{number:04d}.html" for number in range(1, len(views) + 1)]
    pages = {name: trace_page(view, has_index=True) for name, view in zip(names, views, strict=True)}
    entries = list(zip(names, views, strict=True))
    index = page_templates().get_template("index.html.j2").render(title=title, entries=entries)
    return {"index.html": index.lstrip(), **pages}
