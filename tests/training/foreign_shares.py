"""What share of published trajectories converts: `python -m tests.training.foreign_shares NAME=FILE,FILE ...`.

The files are no part of the repository; the table of training/corpus/README.md names where they are from.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from foundation.errors import ArenaError
from training.corpus.filter.gates import is_paired
from training.corpus.model import Trace
from training.corpus.sources.foreign import read_foreign


def shares(files: list[Path]) -> tuple[Counter[str], Counter[str]]:
    """Of all rows of the files: how many are traces (with calls, with every call answered), and the codes of the
    rest."""
    found, codes = Counter[str](), Counter[str]()
    for file in files:
        try:
            for row in read_foreign(file):
                found["rows"] += 1
                if isinstance(row, Trace):
                    has_calls = any(message.calls for message in row.messages)
                    found.update({"converted": 1, "calls": has_calls, "paired": has_calls and is_paired(row.messages)})
                else:
                    codes[row.code] += 1
        except ArenaError as error:
            assert error.failure.code == "V2098", error
    return found, codes


if __name__ == "__main__":
    print("| source | n | converted | with calls | all calls answered | rest |\n|---|---|---|---|---|---|")
    for name, _, files in (argument.partition("=") for argument in sys.argv[1:]):
        found, codes = shares([Path(file) for file in files.split(",")])
        rest = ", ".join(f"{count} {code}" for code, count in sorted(codes.items()))
        print(f"| {name} | {found['rows']} | {found['converted']} | {found['calls']} | {found['paired']} | {rest} |")
