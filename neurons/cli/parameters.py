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
        is_list, info, choices = self.described.is_list, self.parameter_info, self.described.choices or ()
        kind, taken = get_args(self.annotation)[0] if is_list else self.annotation, []
        for each in value if is_list else (value,):
            if info.parser is not None:
                taken.append(info.parser(each))
            elif kind is Path:
                taken.append(coerce_cli_path(Path(each), info, path_type=Path, param=param, ctx=ctx))
            elif type(each) is kind or each in choices:
                taken.append(each)
            elif kind is int and each.isdecimal() and (info.min or 0) <= int(each) <= (info.max or math.inf):
                taken.append(int(each))
            else:
                return build_runtime_param(self.described).coerce(value, param, ctx)
        return taken if is_list else taken[0]


# from now on in this process
vars(typer.core)["build_runtime_param"] = lambda made: _PlainParam(made.parameter_info, made.annotation, made)
