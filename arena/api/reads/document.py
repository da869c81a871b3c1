"""The OpenAPI document of the reads: answers described from their types, each with an example.

What the document says of an answer is made from the value that is sent, so the two cannot drift apart.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.responses import Response

_REF = "#/components/schemas/{name}"
_RANGES = {
    206: {"description": "The range that was asked for."},
    304: {"description": "What the client has is the present state (`if-none-match`)."},
}
_described: dict[str, Any] = {}


def described(answer: type, example: object) -> dict[str, Any]:
    """The arguments of a route that answers with JSON of a type. `example` None: none is given."""
    (schema,), components = msgspec.json.schema_components([answer], ref_template=_REF)
    _described.update(components)
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = msgspec.to_builtins(example)
    return _route({"description": (answer.__doc__ or "").strip(), "content": {"application/json": content}})


def described_text(media_type: str, description: str) -> dict[str, Any]:
    """The arguments of a route that answers with a file."""
    content = {media_type: {"schema": {"type": "string"}}}
    return _route({"description": description, "content": content})


def complete_document(app: FastAPI) -> None:
    """Put the schemas that routes refer to into the application's document."""
    make = app.openapi

    def with_components() -> dict[str, Any]:
        document = make()
        document.setdefault("components", {}).setdefault("schemas", {}).update(_described)
        return document

    app.openapi = with_components  # type: ignore[method-assign]


def _route(answer: dict[str, Any]) -> dict[str, Any]:
    return {"response_class": Response, "responses": {200: answer, **_RANGES}}
