"""`python -m tests.structure [--trip] [--details] [--json] [--root CHECKOUT]`: measure a checkout's shape."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from tests.structure.figures import figures_of, folders, measure, table
from tests.structure.product import Product, citations, docstring_lines_e2
from tests.structure.trip import take_trip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.structure")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2], help="the checkout to measure")
    parser.add_argument("--trip", action="store_true", help="also take the trip: some minutes")
    parser.add_argument("--called", type=Path, help="with --trip: write each function called to this file")
    parser.add_argument("--details", action="store_true", help="also list the citations that are counted")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    product = Product(given.root)
    figures, trip = measure(product), None
    if given.trip:
        called = take_trip(product)
        trip = figures_of(called)
        if given.called:
            lines = sorted(f"{step}\t{one.file}\t{one.name}" for step, found in called.items() for one in found)
            given.called.write_text("".join(f"{line}\n" for line in lines))
    if given.json:
        print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        print(table(figures, trip), folders(product), sep="\n\n")
    if given.details:
        print(f"docstring lines for each public function, in hundredths: {docstring_lines_e2(product)}")
        for place in citations(product):
            print(f"cites a document that is not in the repository: {place}")


if __name__ == "__main__":
    main()
