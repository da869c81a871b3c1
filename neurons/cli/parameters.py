"""What the parameters of commands take as it is. Typer asks pydantic for every one of them, defaults too, and importing
that takes longer than most commands do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import typer.core
from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
from typer._param_types import coerce_cli_path


@dataclass(frozen=True)
class _PlainParam(RuntimeParam):
    """Takes a text, a path, a whole number and what is of its type already; of all else typer says what is wrong."""

    described: TypeDescriptor

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            if param.multiple or param.nargs == -1:
                (kind,) = get_args(self.annotation)
                return [self._taken(kind, each, param, ctx) for each in value]
            return self._taken(self.annotation, value, param, ctx)
        except ValueError:
            return build_runtime_param(self.described).coerce(value, param, ctx)

    def _taken(self, kind: Any, value: Any, param: Any, ctx: Any) -> Any:
        info = self.parameter_info
        if info.parser is not None:
            return info.parser(value)
        if kind is Path:
            return coerce_cli_path(Path(value), info, path_type=Path, param=param, ctx=ctx)
        if kind is int and isinstance(value, str) and value.isdecimal():
            number = int(value)
            if (info.min or 0) <= number <= (math.inf if info.max is None else info.max):
                return number
        if type(value) is kind or value in (self.described.choices or ()):
            return value
        raise ValueError(value)


def take_plainly() -> None:
    """Let typer's parameters be such, from now on in this process."""

    def plain(described: TypeDescriptor) -> RuntimeParam:
        return _PlainParam(described.parameter_info, described.annotation, described)

    vars(typer.core)["build_runtime_param"] = plain
