"""A conversation of the `messages` view under the chat templates that TRL ships: arguments as objects, or as text where
a template wants that, come out once encoded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

QUERY = 'a "red" lamp'
TAKES_OBJECTS = ("qwen2_5", "qwen3", "qwen3_5_think", "qwen3_8", "glm4moe", "nemotron_3_nano", "gptoss")
TAKES_TEXT = ("deepseekv3",)


def template(name: str) -> str:
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text("utf-8")


def talk(arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "find_product", "arguments": arguments}}
    return [
        {"role": "user", "content": "find it"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "find_product", "content": "[]"},
        {"role": "assistant", "content": "done"},
    ]


def rendered(name: str, arguments: Any) -> str:
    texts, _ = render_jinja_template(conversations=[talk(arguments)], chat_template=template(name))
    return str(texts[0])


def is_encoded_once(text: str) -> bool:
    """The argument stands there as JSON, or plain between tags; not as JSON in JSON."""
    return ('"a \\"red\\" lamp"' in text or QUERY in text) and '\\\\\\"red' not in text and '{\\"q' not in text


@pytest.mark.parametrize("name", TAKES_OBJECTS)
def test_arguments_as_objects_are_rendered_once(name: str) -> None:
    assert is_encoded_once(rendered(name, {"q": QUERY}))


@pytest.mark.parametrize("name", TAKES_TEXT)
def test_arguments_as_text_are_rendered_once(name: str) -> None:
    assert is_encoded_once(rendered(name, json.dumps({"q": QUERY})))


@pytest.mark.parametrize("name", TAKES_OBJECTS)
def test_text_is_no_form_for_all_of_them(name: str) -> None:
    """Why there are two forms: text is encoded twice, or refused, by every one of these but Qwen3's own."""
    try:
        is_sound = is_encoded_once(rendered(name, json.dumps({"q": QUERY})))
    except (TemplateError, TypeError):
        is_sound = False
    assert is_sound == (name == "qwen3")
