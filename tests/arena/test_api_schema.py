"""The live tail does what its OpenAPI document says, whatever parameters it is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from tests.arena.log_stand import attempt
from tests.arena.tail_stand import Author, serving

CHECKS = [not_a_server_error, content_type_conformance, status_code_conformance]


@pytest.fixture
def author(postgres, signer) -> Author:
    return Author(postgres.dsn_for(signer.hotkey), signer)


def test_every_route_answers_any_parameters_as_documented(author: Author) -> None:
    author.append([attempt(1)])
    with serving(author.dsn) as server:
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        for path in ("/v1/tail", "/v1/records", "/v1/head", "/v1/checkpoints", "/v1/health"):
            sound = schema[path]["GET"].as_strategy()
            wrong = schema[path]["GET"].as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

            @settings(max_examples=20)
            @given(case=sound | wrong if path not in ("/v1/head", "/v1/health") else sound)
            def probe(case: schemathesis.Case) -> None:
                if isinstance(case.query, dict):
                    case.query.pop("follow", None)  # an answer that never ends is tested elsewhere
                case.call_and_validate(checks=CHECKS, timeout=10)

            probe()
