"""The live tail does what its OpenAPI document says, whatever parameters it is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from tests.arena.log_stand import attempt
from tests.arena.tail_stand import Author, serving

STREAMS = ("/v1/tail", "/v1/records", "/v1/checkpoints")
CHECKS = [not_a_server_error, content_type_conformance, status_code_conformance]


@pytest.fixture
def author(postgres, signer) -> Author:
    return Author(postgres.dsn_for(signer.hotkey), signer)


@pytest.mark.parametrize("more", [1, pytest.param(20, marks=pytest.mark.prove)])
def test_every_route_answers_any_parameters_as_documented(author: Author, more: int) -> None:
    author.append([attempt(1)])
    with serving(author.dsn, requests_per_s=1e6, is_sn15_served=True) as server:
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
                case.call_and_validate(checks=CHECKS, timeout=10)

            probe()
