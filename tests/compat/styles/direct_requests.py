"""SN15's present contract by `requests` alone, as its own preflight speaks: the proxy's address, no client."""

import os
from dataclasses import dataclass, field

import requests

PROXY = os.environ.get("SANDBOX_PROXY_URL", "http://proxy:80").rstrip("/")


@dataclass
class Session:
    binding: dict
    turn: int = 0
    log: list = field(default_factory=list)

    def act(self, name, **args):
        self.turn += 1
        key = f"t{self.turn}"
        envelope = {**self.binding, "call_id": key, "idempotency_key": key, "turn": self.turn}
        body = {**envelope, "action": {"name": name, "args": args}}
        response = requests.post(f"{PROXY}/environment/call", json=body, timeout=70)
        response.raise_for_status()
        result = response.json()
        self.log.append({"role": "assistant", "content": name, "environment_result": result})
        return result["observation"]


def agent_main(problem_data):
    environment = problem_data["environment"]
    session = Session(environment["binding"])
    names = {tool["function"]["name"] for tool in environment["policy_view"]["tools"]}
    if not {"find_product", "recommend_product", "terminate"} <= names:
        return session.log
    hits = session.act("find_product", q=problem_data["query"][:60])["observation"]["results"]
    session.act("recommend_product", product_ids=hits[0]["product_id"] if hits else "0")
    session.act("terminate")
    return session.log
