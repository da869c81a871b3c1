"""How long the tools of an episode take: a toolbox that keeps time for the host's metrics, never for a record."""

from __future__ import annotations

from collections.abc import Callable

from harness.tools.port import Toolbox, ToolOutcome
from harness.work import WorkMeter


class TimedToolbox:
    """A `Toolbox` that answers as `toolbox` does and adds up what it took."""

    def __init__(self, toolbox: Toolbox, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, monotonic."""
        self._toolbox, self._clock = toolbox, clock
        self.seconds = 0.0

    @property
    def profile(self) -> str:
        """As the toolbox's."""
        return self._toolbox.profile

    @property
    def schemas(self) -> str:
        """As the toolbox's."""
        return self._toolbox.schemas

    @property
    def schemas_sha256(self) -> str:
        """As the toolbox's."""
        return self._toolbox.schemas_sha256

    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        """As the toolbox's, which also says what is raised."""
        started_s = self._clock()
        try:
            return self._toolbox.dispatch(name, arguments, work)
        finally:
            self.seconds += self._clock() - started_s
