"""One digest by one process, by processes, by a Ray cluster of two nodes, and by one of which a node is killed.

The tests of `tests/neurons` that need a cluster and are skipped where Ray is not installed: here it is installed first,
into build/ray.
"""

from __future__ import annotations

import pytest

from tests.neurons.conftest import arena_base, small_catalogue  # noqa: F401 - fixtures
from tests.neurons.test_cluster import (  # noqa: F401 - fixtures and tests
    asked,
    bench,
    day,
    jobs,
    places,
    ports,
    test_a_cluster_evaluates_a_model_and_an_agent_as_one_process_does_a_node_killed_or_not,
    test_a_cluster_keeps_the_promise_of_the_port_and_a_killed_node_costs_nothing,
    test_one_process_processes_a_cluster_and_a_killed_node_give_one_corpus,
)

pytestmark = pytest.mark.prove
