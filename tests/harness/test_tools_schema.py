"""The published schemas: held by a snapshot, generated from signatures, and accepted by what they describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from foundation.canonical import text_hash
from harness.tools.port import ToolContext, ToolOutcome
from harness.tools.registry import PROFILES, profile_schemas
from harness.tools.schema import describe_tool

SNAPSHOT = Path(__file__).with_name("tools_schemas.json")


@pytest.mark.parametrize("profile", list(PROFILES))
def test_schemas_are_the_published_ones(profile: str) -> None:
    """A change here changes what every model is told: renew the snapshot on purpose, by
    `python -m tests.harness.test_tools_schema`."""
    published = json.loads(SNAPSHOT.read_text("utf-8"))
    assert json.loads(profile_schemas(profile)) == published[profile]["tools"]
    assert text_hash(profile_schemas(profile)) == published[profile]["sha256"]


@pytest.mark.parametrize("profile", list(PROFILES))
def test_every_schema_is_a_closed_function_schema(profile: str) -> None:
    for entry in json.loads(profile_schemas(profile)):
        assert entry["type"] == "function"
        function = entry["function"]
        assert function["description"].endswith(".") and "\n" not in function["description"]
        parameters = function["parameters"]
        assert parameters["additionalProperties"] is False
        assert set(parameters["required"]) == {
            name for name, one in parameters["properties"].items() if "default" not in one
        }
        assert all(one["description"] for one in parameters["properties"].values())


def weigh(
    context: ToolContext, what: str, grams: int, unit: Literal["g", "kg"] = "g", factor: float = 1.5
) -> ToolOutcome:
    """Weigh something
    on a scale.

    Args:
        what: The thing,
            named.
        grams: Its weight.
        unit: The unit.
        factor: A factor.
    """
    return ToolOutcome(result="{}")


def test_a_schema_comes_from_signature_and_docstring() -> None:
    tool = describe_tool(weigh)
    assert tool.schema()["function"] == {
        "name": "weigh",
        "description": "Weigh something on a scale.",
        "parameters": {
            "type": "object",
            "properties": {
                "what": {"type": "string", "description": "The thing, named."},
                "grams": {"type": "integer", "description": "Its weight."},
                "unit": {"type": "string", "description": "The unit.", "enum": ["g", "kg"], "default": "g"},
                "factor": {"type": "number", "description": "A factor.", "default": 1.5},
            },
            "required": ["what", "grams"],
            "additionalProperties": False,
        },
    }
    assert tool.usage() == "weigh(what, grams, unit='g', factor=1.5)"


def undocumented(context: ToolContext, what: str) -> ToolOutcome:
    """Nothing about what."""
    return ToolOutcome(result="{}")


def unsupported(context: ToolContext, what: bytes) -> ToolOutcome:
    """Bytes.

    Args:
        what: No JSON type.
    """
    return ToolOutcome(result="{}")


@pytest.mark.parametrize("function", [undocumented, unsupported])
def test_a_tool_that_cannot_be_described_is_a_bug_seen_at_once(function: object) -> None:
    with pytest.raises(TypeError):
        describe_tool(function)  # type: ignore[arg-type]


def write_snapshot() -> None:
    """Renew the snapshot from the code."""
    published = {
        name: {"sha256": text_hash(profile_schemas(name)), "tools": json.loads(profile_schemas(name))}
        for name in PROFILES
    }
    SNAPSHOT.write_text(json.dumps(published, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write_snapshot()
