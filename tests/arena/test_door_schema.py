"""The door does what its OpenAPI document says, whatever it is sent, by strangers and by a registered hotkey."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from arena.chain.keys import generate_signer
from arena.store.embedded import EmbeddedServer
from tests.arena.door_stand import WIDE_RULES, Miner, Stand, serving

CHECKS = [not_a_server_error, content_type_conformance, status_code_conformance, response_schema_conformance]
ROUTES = (
    ("/v1/door", "GET"),
    ("/v1/submissions", "GET"),
    ("/v1/submissions", "POST"),
    ("/v1/submissions/{version}", "GET"),
    ("/v1/submissions/{version}", "DELETE"),
)
PARTS = ("method", "url", "headers", "params", "data", "json", "files", "cookies")


@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.prove)])
def test_every_route_answers_anything_as_documented(postgres: EmbeddedServer, tmp_path: Path, examples: int) -> None:
    stand = Stand(tmp_path, "", f"//{generate_signer().hotkey}")
    stand.dsn = postgres.dsn_for(stand.validator)
    statuses = set()
    with serving(stand, WIDE_RULES), requests.Session() as session:
        miner = asyncio.run(Miner(stand).register())
        asyncio.run(miner.commit())
        schema = schemathesis.openapi.from_url(f"{stand.address}/openapi.json")
        paths = schema.raw_schema["paths"].items()
        assert {(path, method.upper()) for path, each in paths for method in each} == set(ROUTES)
        for path, method in ROUTES:
            sound = schema[path][method].as_strategy()
            wrong = schema[path][method].as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

            @settings(max_examples=examples, deadline=None)
            @given(case=sound | wrong if "{" in path or method == "POST" else sound)
            def probe(case: schemathesis.Case) -> None:
                made = case.as_transport_kwargs(base_url=stand.address)
                request = requests.Request(**{name: made[name] for name in PARTS if name in made}).prepare()
                case.validate_response(session.send(request, timeout=30), checks=CHECKS)
                body = request.body or b""
                content = body.encode() if isinstance(body, str) else body
                assert isinstance(content, bytes)
                request.headers.update(miner.auth.sign(request.method, request.path_url, stand.validator, content))
                answer = session.send(request, timeout=30)
                statuses.add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

            probe()
    assert {200, 400, 404} <= statuses  # signatures were believed
