"""What the product is, read from pyproject.toml, so that a room may be renamed without a change here."""

from __future__ import annotations

import ast
import tomllib
from functools import cached_property
from pathlib import Path


class Product:
    """The product of a repository: the Python files of its packages, tests excepted."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @cached_property
    def roots(self) -> tuple[Path, ...]:
        """The top folders that setuptools packages, each of them the outermost one."""
        find = tomllib.loads((self.root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"][
            "find"
        ]
        found = {
            path
            for where in find["where"]
            for pattern in find["include"]
            for path in (self.root / where).glob(pattern.partition(".")[0])
            if path.is_dir() and any(path.rglob("*.py"))
        }
        return tuple(sorted(path for path in found if not found & set(path.parents)))

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Every Python file of the product, sorted."""
        return tuple(sorted(path for root in self.roots for path in root.rglob("*.py")))

    def name_of(self, path: Path) -> str:
        """The file's path in the repository."""
        return path.relative_to(self.root).as_posix()

    @cached_property
    def texts(self) -> dict[Path, str]:
        """Each file's text."""
        return {path: path.read_text("utf-8") for path in self.files}

    def text_of(self, path: Path) -> str:
        """One file's text."""
        return self.texts[path]

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        """Each file parsed."""
        return {path: ast.parse(text, filename=self.name_of(path)) for path, text in self.texts.items()}
