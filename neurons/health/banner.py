"""What a validator says when it is up: what it is, where its state lies, where it answers, what happens next."""

from __future__ import annotations

from arena.chain.port import is_local
from arena.race.state.schedule import coming_closes_ms
from neurons.health.status import RaceFacts
from neurons.node.node import Node
from neurons.node.settings import Settings
from neurons.race.sentences import clock, short

_DEAD = "No agent's run ends before it answers, and none loses by it. Start it: the node goes on and finds it by itself"


def banner(settings: Settings, node: Node, race: RaceFacts | None) -> str:
    """Ten lines, and one for each model endpoint that does not answer. `race`: the current one as the store knows it,
    None before the first."""
    policy, sandbox = node.policy, node.conditions.sandbox
    key = f" ({settings.wallet_hotkey})" if settings.wallet_hotkey.startswith("//") else ""
    store = "your Postgres" if settings.database_dsn.get_secret_value() else f"{settings.state_dir}/postgres"
    models = settings.openai_base_url or "; ".join(one.base_url for one in settings.upstreams)
    door = (
        f"http://{settings.door_host}:{node.serving.door_port}"
        if node.serving and node.serving.door_port
        else "off (--door-port)"
    )
    reads = f"http://{settings.serve_host}:{settings.serve_port}" if settings.serve_port else "off (--serve-port)"
    metrics = (
        f"http://{settings.metrics_host}:{settings.metrics_port}/metrics"
        if settings.metrics_port
        else "off (--metrics-port)"
    )
    network = "the local network" if is_local(settings.network) else settings.network
    rows = [
        ("state", f"{settings.state_dir}"),
        ("log", f"{store}; checkpoints in {settings.state_dir}/checkpoints"),
        ("rules", f"policy {policy.name} {short(policy.policy_sha256)}: {policy.race.problems} problems a race"),
        ("agents", f"{node.pool.size} at once in {sandbox.name}"),
        ("models", f"{models or 'scripted, on this machine'}; judge {settings.judge_base_url or 'scripted'}"),
        ("miners", f"submit at {door}"),
        ("reads", f"{reads}; metrics {metrics}"),
        ("next", _next(node, race)),
        ("stop", f"Ctrl-C; how it is: arena validator status --state-dir {settings.state_dir}"),
    ]
    rows[5:5] = [("DEAD", f"{line}. {_DEAD}") for line in node.silent]
    head = f"validator {short(node.signer.hotkey)}{key} on netuid {settings.netuid} of {network}"
    return "\n".join([head, *(f"  {name:<7}{text}" for name, text in rows)])


def _next(node: Node, race: RaceFacts | None) -> str:
    if race is not None and race.deadline is not None:
        return f"{race.race_id}, {race.stage}: {race.deadline.what} {clock(race.deadline.at_ms)}"
    closes = clock(coming_closes_ms(node.now_ms(), node.policy.race, 1)[0])
    return f"the next race opens and closes to submissions about {closes}; weights follow once it is settled"
