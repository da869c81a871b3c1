"""The templates of the report's pages."""

from __future__ import annotations

import functools
from importlib.resources import files

from jinja2 import Template

from arena.view.page import page_templates


@functools.cache
def read_template(name: str) -> Template:
    """The template of that file name in `training/corpus`: everything put in is escaped, and nothing may be missing.
    What all pages of traces share is imported from `parts.html.j2` of `arena.view`."""
    text = files("training.corpus").joinpath(name).read_text("utf-8")
    return page_templates().from_string(text)
