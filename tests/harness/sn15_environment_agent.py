"""An agent of SN15's present contract, written for the tests: classes, and no tool name of its own."""

import json

from src.agent.proxy_client import ProxyClient

proxy = ProxyClient(timeout=60, max_retries=2)


class Shopper:
    """Hands the model the environment's tools and the environment the model's calls."""

    def __init__(self, problem_data):
        environment = problem_data["environment"]
        self.binding = environment["binding"]
        self.view = environment["policy_view"]
        self.name = str(problem_data["problem_id"])
        self.messages = [
            {"role": "system", "content": "Shop with the tools until an observation says that it is done."},
            {"role": "user", "content": self.view["query"]},
        ]
        self.dialogue = []

    def ask(self):
        reply = proxy.post(
            "/inference/chat/completions",
            json_data={
                "model": "some/model-of-the-subnet",
                "messages": self.messages,
                "tools": self.view["tools"],
                "tool_choice": "required",
                "temperature": 0,
            },
        )
        if reply is None:
            raise RuntimeError("no completion")
        return reply["choices"][0]["message"]

    def act(self, turn, calls):
        group = f"{self.name}/{turn}"
        actions = [
            {"name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])} for call in calls
        ]
        envelope = {
            **self.binding,
            "call_id": group,
            "idempotency_key": group,
            "turn": turn,
            "calls": [
                {"call_id": f"{group}/{place}", "action": action} for place, action in enumerate(actions, start=1)
            ],
        }
        result = proxy.post("/environment/call", json_data=envelope)
        if result is None:
            raise RuntimeError("no answer of the environment")
        assert proxy.post("/environment/call", json_data=envelope)["replayed"]
        return result

    def run(self):
        for turn in range(1, self.view["max_steps"] + 1):
            message = self.ask()
            calls = (message.get("tool_calls") or [])[: self.view["max_calls_per_turn"]]
            if not calls:
                break
            self.messages.append({"role": "assistant", "content": message.get("content") or "", "tool_calls": calls})
            result = self.act(turn, calls)
            self.dialogue.append({"tool_calls": calls, "environment_result": result})
            for call, done in zip(calls, result["calls"], strict=True):
                shown = json.dumps(done["observation"])
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": shown})
            if any(done["observation"]["done"] for done in result["calls"]):
                break
        return self.dialogue


def agent_main(problem_data):
    return Shopper(problem_data).run()
