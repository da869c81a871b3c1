"""The contract of every jail, asked of the engine that docker/check_engine.py opened.

No test of the suite: the adapters' own files subclass the contract with what this host has.
"""

from __future__ import annotations

import pytest

from harness.sandbox.port import Sandbox
from tests.harness.sandbox_contract import EndingsContract, SandboxContract


class TestContract(SandboxContract, EndingsContract):
    @pytest.fixture
    def sandbox(self, engine: Sandbox) -> Sandbox:
        return engine
