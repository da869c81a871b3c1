"""Logs: one line per event on stderr, for people on a terminal and as JSON lines everywhere else.

An event may carry `text`, what it means to people: a terminal shows the time and that alone, JSON lines keep it beside
the fields. Stdout stays free for results. Records, not logs, are the evidence.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

import orjson
import structlog
from structlog.typing import EventDict, Processor

from foundation.errors import printable, redacted

LogLevel = Literal["debug", "info", "warning", "error"]


def configure_logs(level: LogLevel = "info") -> None:
    """Send structlog events to stderr: for people on a terminal, JSON lines otherwise."""
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
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _for_people(otherwise: structlog.dev.ConsoleRenderer) -> Callable[[Any, str, EventDict], str]:
    """A renderer that shows an event's `text` (none where it is ""), and any other event as fields."""

    def render(logger: Any, name: str, event: EventDict) -> str:
        text = event.get("text")
        if text == "":  # what only the machinery needs
            raise structlog.DropEvent
        if text:
            return f"{str(event['timestamp'])[11:19]} UTC  {printable(text)}"
        said = {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}
        return otherwise(logger, name, said)  # it has colours of its own

    return render
