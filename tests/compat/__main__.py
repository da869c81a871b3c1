"""`make compat FOREIGN=DIR`: examine what lies in DIR and write docs/compatibility.md. Red rows are no failure."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.compat.rows import Row, examine_all, known_kinds, read_page, write_page

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def main() -> None:
    """Rows of kinds that DIR does not have stay as the page has them."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("usage: make compat FOREIGN=DIR, where DIR has folders such as agents/ and sources.json", file=sys.stderr)
        raise SystemExit(2)
    foreign = Path(sys.argv[1])
    before = read_page(PAGE.read_text("utf-8")) if PAGE.exists() else ()
    rows: list[Row] = []
    for kind in known_kinds():
        if not (foreign / kind.folder).is_dir():
            rows += [row for row in before if row.kind == kind.folder]
            continue
        for row in examine_all(foreign, kind):
            print(f"{'red' if row.is_red else 'ok '}  {row.kind}/{row.name}: {row.result}", flush=True)
            rows.append(row)
    ran_on = datetime.now(UTC).strftime("%Y-%m-%d")
    PAGE.write_text(write_page(rows, ran_on=ran_on, version=f"version {version('agent-arena')}"), encoding="utf-8")
    print(f"{PAGE}: {len(rows)} rows, {sum(row.is_red for row in rows)} red")


if __name__ == "__main__":
    main()
