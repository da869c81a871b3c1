"""The figures of one commit, as values and as a table."""

from __future__ import annotations

import msgspec

from tests.structure import static
from tests.structure.product import Product
from tests.structure.trip import Called


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """What one submission's way to a training row touches; `steps` by command: files and functions."""

    files: int
    functions: int
    steps: dict[str, tuple[int, int]]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The measures. Shares are in ten-thousandths of all functions. Definitions: docs/structure.md."""

    lines: int
    files: int
    functions: int
    private_used_once: int
    private_used_once_e4: int
    used_once: int
    used_once_e4: int
    full_folders: int
    circles: int
    circles_with_typing: int
    circles_with_lazy: int
    repeated_classes: int
    replacements: int
    citations: int
    trip: Trip | None = None


def measure(product: Product) -> Figures:
    """Everything but the trip: seconds, and nothing of the product is imported."""
    functions = len(static.functions(product))
    private, every = static.used_once(product)
    return Figures(
        lines=static.lines(product),
        files=len(product.files),
        functions=functions,
        private_used_once=len(private),
        private_used_once_e4=len(private) * 10_000 // functions,
        used_once=len(every),
        used_once_e4=len(every) * 10_000 // functions,
        full_folders=len(static.full_folders(product)),
        circles=len(static.circles(product)),
        circles_with_typing=len(static.circles(product, is_typing=True)),
        circles_with_lazy=len(static.circles(product, is_lazy=True)),
        repeated_classes=len(static.repeated_classes(product)),
        replacements=len(static.replacements(product)),
        citations=len(static.citations(product)),
    )


def figures_of(called: dict[str, set[Called]]) -> Trip:
    """The trip's figures."""
    every = set().union(*called.values())
    steps = {step: (len({one.file for one in found}), len(found)) for step, found in called.items()}
    return Trip(files=len({one.file for one in every}), functions=len(every), steps=steps)


def table(figures: Figures) -> str:
    """One line a figure."""
    rows = [(name, getattr(figures, name)) for name in figures.__struct_fields__ if name != "trip"]
    if figures.trip is not None:
        rows += [("trip files", figures.trip.files), ("trip functions", figures.trip.functions)]
        rows += [
            (f"  {step}", f"{files} files, {calls} functions") for step, (files, calls) in figures.trip.steps.items()
        ]
    return "\n".join(f"{name.replace('_', ' '):<24} {value:>8}" for name, value in rows)


def details(product: Product) -> str:
    """Which folders, circles, names and places the figures count."""
    lines = [f"{count} files in {folder}" for folder, count in static.full_folders(product).items()]
    lines += [f"circle: {' '.join(circle)}" for circle in static.circles(product, is_typing=True, is_lazy=True)]
    lines += [f"class {name}: {', '.join(files)}" for name, files in static.repeated_classes(product).items()]
    lines += [f"replaces a file: {place}" for place in static.replacements(product)]
    lines += [f"cites what is not here: {place}" for place in static.citations(product)]
    lines += [f"private, used once: {place}" for place in static.used_once(product)[0]]
    return "\n".join(lines)
