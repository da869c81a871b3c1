"""What the doctor looks at, in this order."""

from __future__ import annotations

from neurons.health.doctor import (
    Check,
    check_bank,
    check_bodies,
    check_chain,
    check_cores,
    check_disk,
    check_engine,
    check_memory,
    check_model,
    check_network,
    check_platform,
    check_postgres,
    check_python,
    check_sandbox,
    check_time_zones,
)

CHECKS: tuple[tuple[str, Check], ...] = (
    ("python", check_python),
    ("platform", check_platform),
    ("cores", check_cores),
    ("memory", check_memory),
    ("state folder", check_disk),
    ("time zones", check_time_zones),
    ("sandbox", check_sandbox),
    ("postgres", check_postgres),
    ("bodies", check_bodies),
    ("model", check_model),
    ("search engine", check_engine),
    ("chain keys", check_chain),
    ("network", check_network),
    ("bank", check_bank),
)
