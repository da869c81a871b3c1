"""`make compat FOREIGN=DIR`: run what lies in DIR and write build/compat.json. Red rows are no failure.

Nothing is fetched. docs/compatibility.md sums up what was found.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tests.compat.rows import Row, examine_all, known_kinds

RESULT = Path(__file__).parents[2] / "build" / "compat.json"


def main() -> None:
    """Print a row for each thing as it is examined, and keep them all."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("usage: make compat FOREIGN=DIR, where DIR has folders such as agents/ and sources.json", file=sys.stderr)
        raise SystemExit(2)
    rows: list[Row] = []
    for kind in known_kinds():
        for row in examine_all(Path(sys.argv[1]), kind):
            found = row.found
            print(f"{'red' if found.is_red else 'ok '}  {row.path} {found.name}: {found.result}", flush=True)
            rows.append(row)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    print(f"{RESULT}: {len(rows)} rows, {sum(row.found.is_red for row in rows)} red")


if __name__ == "__main__":
    main()
