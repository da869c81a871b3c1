"""The live tail does what its OpenAPI document says, whatever parameters it is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    status_code_conformance,
)

from tests.arena.log_stand import attempt
from tests.arena.tail_stand import Author, serving

CHECKS = (not_a_server_error, content_type_conformance, negative_data_rejection, status_code_conformance)


@pytest.fixture
def author(postgres, signer) -> Author:
    return Author(postgres.dsn_for(signer.hotkey), signer)


@pytest.mark.parametrize("path", ["/v1/tail", "/v1/records", "/v1/head", "/v1/checkpoints", "/v1/health"])
def test_every_route_answers_any_parameters_as_documented(author: Author, path: str) -> None:
    author.append([attempt(1)])
    with serving(author.dsn) as server:
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")

        @settings(max_examples=25)
        @schema[path]["GET"].as_strategy_given if False else _given(schema, path)
        def probe(case: schemathesis.Case) -> None:
            if isinstance(case.query, dict):
                case.query.pop("follow", None)  # an answer that never ends is tested elsewhere
            case.call_and_validate(checks=CHECKS, timeout=10)

        probe()
