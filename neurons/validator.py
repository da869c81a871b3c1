"""The validator: `python neurons/validator.py --wallet.name NAME --wallet.hotkey NAME --netuid 15`.

Promise: reads its settings, opens one node, runs the supervisor, and leaves nothing running. `--dry-run` prints every
setting with the place it came from and starts nothing. Exit codes: 0 stopped cleanly, 2 usage, 3 environment not ready,
4 integrity violation.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # started from a checkout: the packages lie beside this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a validator until it is told to stop; returns the exit code."""
    from neurons.cli.app import run_guarded

    return run_guarded(lambda: _run(list(sys.argv[1:] if argv is None else argv)))


def _run(argv: list[str]) -> int:
    from neurons.observe import set_up_logging
    from neurons.settings import resolve_arguments, show_settings
    from problems.errors import ArenaError

    is_dry_run = "--dry-run" in argv
    resolved = resolve_arguments([argument for argument in argv if argument not in ("--dry-run", "--json")])
    if resolved.rest:
        raise ArenaError("V2030", f"unknown argument {resolved.rest[0]}")
    if is_dry_run:
        show_settings(resolved, is_json="--json" in argv)
        return 0
    set_up_logging(resolved.settings)
    asyncio.run(_serve(resolved))
    return 0


async def _serve(resolved: object) -> None:
    from neurons.node_opening import open_node
    from neurons.settings import ResolvedSettings
    from neurons.supervisor import Supervisor

    assert isinstance(resolved, ResolvedSettings)
    async with open_node(resolved.settings) as node:
        await Supervisor(node).run()


if __name__ == "__main__":
    raise SystemExit(main())
