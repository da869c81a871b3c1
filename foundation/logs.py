"""Logs: one line per event on stderr, for people on a terminal and as JSON lines everywhere else.

An event may carry `text`, what it means to people: a terminal shows the time and that alone, JSON lines keep it beside
the fields. Stdout stays free for results. Records, not logs, are the evidence.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import orjson

from foundation.errors import printable, redacted

if TYPE_CHECKING:
    from structlog.dev import ConsoleRenderer
    from structlog.typing import EventDict, FilteringBoundLogger, Processor

LogLevel = Literal["debug", "info", "warning", "error"]
_wanted: list[LogLevel] = []  # the level, until somebody asks for a logger


def configure_logs(level: LogLevel = "info") -> None:
    """Let structlog's events go to stderr: for people on a terminal, JSON lines otherwise. It is imported with the
    first logger: most commands say nothing, and it takes as long as their own modules."""
    _wanted[:] = [level]


def get_logger() -> FilteringBoundLogger:
    """A logger of structlog's, as `configure_logs` said last."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger()  # it takes its settings when it is used first
    if not _wanted:
        return logger
    shown: list[Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=lambda event, **how: orjson.dumps(event, how["default"]).decode()),
    ]
    if sys.stderr.isatty():
        drawn = structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))
        shown = [structlog.dev.set_exc_info, _for_people(drawn)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *shown,
            lambda logger, name, line: redacted(str(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[_wanted[0].upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    _wanted.clear()  # two threads may both have come here
    return logger


def _for_people(otherwise: ConsoleRenderer) -> Callable[[Any, str, EventDict], str]:
    """A renderer that shows an event's `text` (none where it is ""), and any other event as fields."""
    from structlog import DropEvent

    def render(logger: Any, name: str, event: EventDict) -> str:
        text = event.get("text")
        if text == "":  # what only the machinery needs
            raise DropEvent
        if text:
            return f"{str(event['timestamp'])[11:19]} UTC  {printable(text)}"
        said = {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}
        return otherwise(logger, name, said)  # it has colours of its own

    return render
