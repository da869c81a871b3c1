"""Reads, tail, door and the SN15 routes do what their OpenAPI documents say, whatever they are sent."""

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

from arena.store.embedded import EmbeddedServer
from tests.arena.door_stand import WIDE_RULES, Miner, Stand, serving
from tests.arena.log_stand import attempt
from tests.arena.tail_stand import Author
from tests.arena.tail_stand import serving as serving_reads
from tests.keys import generate_signer

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
def test_every_door_route_answers_anything_as_documented(
    postgres: EmbeddedServer, tmp_path: Path, examples: int
) -> None:
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


STREAMS = ("/v1/tail", "/v1/records", "/v1/checkpoints")


@pytest.mark.parametrize("more", [1, pytest.param(20, marks=pytest.mark.prove)])
def test_every_read_answers_any_parameters_as_documented(postgres, signer, more: int) -> None:
    author = Author(postgres.dsn_for(signer.hotkey), signer)
    author.append([attempt(1)])
    with serving_reads(author.dsn, requests_per_s=1e6, is_sn15_served=True) as server:
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        paths = {path: operations.get("get") for path, operations in schema.raw_schema["paths"].items()}
        assert len(paths) > 30
        for path, operation in paths.items():
            if operation is None:
                continue
            sound = schema[path]["GET"].as_strategy()
            wrong = schema[path]["GET"].as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

            @settings(max_examples=more * (20 if path in STREAMS else 6), deadline=None)
            @given(case=sound | wrong if operation.get("parameters") else sound)
            def probe(case: schemathesis.Case) -> None:
                if isinstance(case.query, dict):
                    case.query.pop("follow", None)  # an answer that never ends is tested elsewhere
                case.call_and_validate(checks=CHECKS[:3], timeout=10)

            probe()
