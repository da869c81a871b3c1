"""The doctor's row for the machines in `[[worker_hosts]]`: each starts one worker, which has to be like one here."""

from __future__ import annotations

import asyncio

import msgspec

from foundation.codes.names import HOST_UNLIKE
from foundation.errors import ArenaError
from neurons.health.doctor import DoctorCheck
from neurons.node.model_endpoints import is_loopback, open_endpoints
from neurons.node.public_inputs import policy_of, prepare_catalogue
from neurons.node.settings import Settings
from neurons.node.wiring import away_setups, worker_setup
from neurons.worker.likeness import differences
from neurons.worker.pool import greet


def check_worker_hosts(settings: Settings) -> DoctorCheck:
    """Each host is reached, runs this release with this index, holds the same jail and reaches the model endpoints. A
    host that does not is a `warn`: the node races without it; so is an endpoint's address that is another machine's
    there. Raises ArenaError for a worker that can't be started on this machine."""
    if not settings.worker_hosts:
        return DoctorCheck(name="worker hosts", status="ok", found="none; episodes run on this machine")
    policy = policy_of(settings)
    prepare_catalogue(settings)
    here = msgspec.structs.replace(worker_setup(settings, policy, (), None, 0), is_away=True)
    home = asyncio.run(greet(here))
    faults = []
    with open_endpoints(settings, policy) as (upstreams, _):
        away = {host.name: (setup, host) for setup, host in away_setups(settings, policy, upstreams, 1)}
        for name, (setup, host) in away.items():
            try:
                if other := differences(asyncio.run(greet(setup, host)), home):
                    raise ArenaError(HOST_UNLIKE, other)
            except ArenaError as error:
                faults.append((name, error))
    if faults:
        found = "; ".join(f"{name}: {error.failure.code} {error.failure.detail}" for name, error in faults)
        fix = f"run its launch command by hand, then: {faults[0][1].fix}"
        return DoctorCheck(name="worker hosts", status="warn", found=found, fix=fix)
    found = ", ".join(f"{host.name} ({host.workers})" for host in settings.worker_hosts)
    if own := [f"{one.name} at {one.base_url}" for one in upstreams if is_loopback(one.base_url)]:
        found += f"; on each of them {', '.join(own)} is that machine itself"
        fix = "set openai_base_url, or base_url in [[upstreams]], to an address that is this endpoint's from there, too"
        return DoctorCheck(name="worker hosts", status="warn", found=found, fix=fix)
    return DoctorCheck(name="worker hosts", status="ok", found=found)
