"""`URL` and `URL=N` on a command line: an OpenAI-compatible endpoint, and how many requests it takes at once."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

_LIMITED = re.compile(r"(?P<url>.+)=(?P<limit>[1-9]\d{0,4})")


def parse_model_url(text: str) -> tuple[str, int]:
    """The address, and how many requests it takes at once; 0: that is not bounded."""
    found = _LIMITED.fullmatch(text)
    return (found["url"], int(found["limit"])) if found else (text, 0)


def endpoint_settings(model_urls: Sequence[str]) -> dict[str, Any]:
    """The settings that name endpoints of one model in place of those of a file; nothing is replaced where none is
    given. Their key is the one in OPENAI_API_KEY."""
    if not model_urls:
        return {"openai_base_url": None, "upstreams": None}
    parts = [parse_model_url(text) for text in model_urls]
    if len(parts) == 1 and not parts[0][1]:
        return {"openai_base_url": parts[0][0], "upstreams": ()}
    key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else ""
    endpoints = tuple(
        {"name": f"model-{number}", "base_url": url, "requests_at_once": limit, "api_key_env": key}
        for number, (url, limit) in enumerate(parts, 1)
    )
    return {"openai_base_url": "", "upstreams": endpoints}
