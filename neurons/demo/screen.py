"""The demo's screen: a live table on a terminal, plain lines elsewhere, one JSON object when asked for."""

from __future__ import annotations

import subprocess
import time

import msgspec
from rich.console import Console
from rich.live import Live

from foundation.errors import ArenaError
from neurons.demo.demo import DemoResult, DemoRun, DemoView, watch
from neurons.demo.view import leaderboard, progress_line, progress_table, rejections, summary, weights_table

LINE_S = 3.0  # between two progress lines of a stream that is no terminal


class DemoScreen:
    """Where the demo is shown. `is_quiet` keeps stdout free for the JSON result."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._console = Console(stderr=is_quiet, highlight=False)

    def tell(self, sentence: str) -> None:
        """One line about what is happening."""
        self._console.print(f"[bold]·[/bold] {sentence}", soft_wrap=True)

    async def follow(self, run: DemoRun, process: subprocess.Popen[bytes], problems: tuple[int, int]) -> DemoView:
        """Show the run until the race is over, and return the last view. Raises what `watch` raises."""
        last: DemoView | None = None
        if self._console.is_terminal:
            with Live(progress_table(run, None), console=self._console, refresh_per_second=4) as live:
                async for view in watch(run, process, problems):
                    live.update(progress_table(run, view))
                    last = view
        else:
            shown, shown_s = "", 0.0
            async for view in watch(run, process, problems):
                line, now_s = progress_line(view), time.monotonic()
                if line != shown and (now_s - shown_s >= LINE_S or view.is_over):
                    self.tell(line)
                    shown, shown_s = line, now_s
                last = view
        if last is None:
            raise ArenaError("V2061", "nothing was seen")
        return last

    def show(self, run: DemoRun, result: DemoResult, *, as_json: bool) -> None:
        """The end: leaderboard, rejections, verification, weights, places, next command."""
        if as_json:
            print_json(run, result)
            return
        self._console.print(leaderboard(result.view))
        for line in rejections(result.view):
            self._console.print(f"[red]rejected[/red] {line}", markup=True)
        self._console.print(weights_table(result))
        for line in summary(run, result):
            self._console.print(line, markup=False, soft_wrap=True)


def print_json(run: DemoRun, result: DemoResult) -> None:
    """The result as one JSON object on stdout."""
    answer = {
        "folder": str(run.folder),
        "settlement": result.view.race.settlement,
        "rejections": rejections(result.view),
        "verify": result.report,
        "weights": result.chain_weights,
        "elapsed_s": round(result.elapsed_s, 1),
    }
    Console(highlight=False, soft_wrap=True).print(msgspec.json.encode(answer).decode(), markup=False)
