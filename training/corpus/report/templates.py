"""The templates of the report's pages."""

from __future__ import annotations

import functools
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template


@functools.cache
def read_template(name: str) -> Template:
    """The template of that file name in `training/corpus`: everything put in is escaped, and nothing may be missing."""
    text = files("training.corpus").joinpath(name).read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text)
