"""SN15's public interface as the shim gives it: registry, ids, steps, the proxy client and its pages."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.catalogue.port import Catalogue, SearchRequest
from harness.catalogue.synthetic import generate
from harness.tools.port import listed
from harness.tools.registry import make_toolbox, profile_schemas
from problems.model import Problem, RewardItem
from tests.harness.catalogue_stand import catalogue_of

GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"
PROBLEM = Problem(problem_id="p", bucket="product", query="q", rewards=(RewardItem(product_id="1", title=("t",)),))

PRELUDE = f"""
import json, sys
sys.path.insert(0, {str(GUEST)!r})
import sn15
from arena_sdk import ToolError, _link
sent = []
answers = {{}}
def transport(method, params):
    sent.append([method, params])
    if method == "llm.chat":
        if params["messages"] == []:
            raise ToolError("A1040", "messages is missing")
        return {{"content": "c", "reasoning": "", "tool_calls": [], "message": {{"role": "assistant", "content": "c"}},
                "finish_reason": "stop", "usage": {{"prompt_tokens": 3, "completion_tokens": 4}}}}
    return {{"result": answers.get(params["name"], "[]"), "failure": None}}
_link.connect(transport, schemas={profile_schemas("sn15")!r}, models=("m1", "m2"))
sn15.install()
"""


def guest(program: str) -> object:
    """What `program` assigns to `out`, under a bare interpreter with the SDK and nothing else."""
    code = f"{PRELUDE}\n{program}\nprint(json.dumps({{'out': out, 'sent': sent}}))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_modules_import_under_sn15s_names_only_when_they_are_asked_for():
    program = """
out = [sn15.is_used(), "src" in sys.modules]
import src.agent.agent_interface as ai
from src.agent import proxy_client
from src.agent.proxy_client import ProxyClient
out += [sn15.is_used(), ai.list_tools(), ProxyClient is proxy_client.ProxyClient]
try:
    import src.agent.problem_scorer
except ImportError as error:
    out.append(type(error).__name__)
"""
    assert guest(program)["out"] == [False, False, True, [], True, "ModuleNotFoundError"]


def test_tools_register_under_their_own_or_a_given_name():
    program = """
from src.agent.agent_interface import Tool, execute_tool_call, get_tool, list_tools, register_tool
@Tool
def one(a): return a
@Tool()
def two(a=1, b=2): return [a, b]
@Tool("three")
def other(a): raise KeyError(a)
register_tool("four", len)
two_result = execute_tool_call("two", {"b": 3})["result"]
out = [list_tools(), execute_tool_call("one", {"a": 5}), two_result, get_tool("four") is len]
for name, parameters in (("five", {}), ("three", {"a": 1}), ("one", {})):
    try:
        execute_tool_call(name, parameters)
    except Exception as error:
        out.append([type(error).__name__, str(error)])
"""
    names, done, two, same, unknown, raised, missing = guest(program)["out"]
    assert names == ["one", "two", "three", "four"] and two == [1, 3] and same
    digest = hashlib.md5(b"one\n{'a': 5}", usedforsecurity=False).digest()
    call_id = base64.urlsafe_b64encode(digest).decode()[:8]
    assert done == {"name": "one", "parameters": {"a": 5}, "tool_call_id": call_id, "result": 5}
    assert unknown == ["ValueError", "Tool 'five' is not registered. Available tools: four, one, three, two"]
    assert raised[0] == "KeyError" and missing[0] == "TypeError"


def test_a_dialogue_step_has_sn15s_shape_and_no_clock():
    program = """
from src.agent.agent_interface import create_dialogue_step
call = {"name": "n", "parameters": {"a": 1}, "tool_call_id": "i", "result": [1]}
out = [create_dialogue_step("t", [call], "r", "q", 2), create_dialogue_step("", [], "", "q", 3)]
"""
    full, empty = guest(program)["out"]
    call = {"name": "n", "parameters": {"a": 1}, "tool_call_id": "i", "result": [1]}
    text = '<think>t</think>\n<tool_call>[{"name": "n", "parameters": {"a": 1}}]</tool_call>\n<response>r</response>'
    assert full == {
        "completion": {
            "reasoning_content": "",
            "content": text,
            "message": {"think": "t", "tool_call": [call], "response": "r"},
        },
        "extra_info": {"step": 2, "query": "q", "timestamp": 0},
    }
    assert empty["completion"] == {"reasoning_content": "", "content": "", "message": {}}


def test_a_recommendation_is_sent_at_once_and_terminate_is_kept_back():
    program = """
from src.agent.agent_interface import Tool, execute_tool_call
@Tool
def recommend_product(product_ids): return "mine"
@Tool
def terminate(status="success"): return "bye"
out = [execute_tool_call("recommend_product", {"product_ids": "1"})["result"]]
out += [execute_tool_call("terminate", {})["result"], len(sent)]
sn15.settle([])
"""
    told = guest(program)
    assert told["out"] == ["mine", "bye", 1]
    assert [params["name"] for _, params in told["sent"]] == ["recommend_product", "terminate"]


def test_the_proxy_client_takes_sn15s_arguments_and_sends_no_key():
    program = """
import os
os.environ["SANDBOX_PROXY_URL"], os.environ["CHUTES_ACCESS_TOKEN"] = "http://somewhere", "a key"
from src.agent.proxy_client import ProxyClient
client = ProxyClient(None, 90, 20, 1.0, 5.0, None)
asked = {"model": "m2", "messages": [{"role": "user", "content": "x"}], "temperature": 0.0, "stream": False}
out = [client.proxy_url, client.max_retries, client.post("/inference/chat/completions", json_data=asked),
       client.post("/inference/chat/completions", {**asked, "model": "elsewhere/model"})["model"],
       client.post("/inference/chat/completions", {"messages": []}), client.post("/inference/chat/completions"),
       client.post("/inference/embeddings", {}), client.get("/search/raw_product", {"id": "1"}),
       client.parse_nonces({"choices": []}), client.dispatch_tool("find_product", '{"q": "x"}', "n", "c")]
"""
    told = guest(program)
    url, retries, reply, substitute, *failed, nonces, dispatched = told["out"]
    assert (url, retries, substitute, nonces, dispatched) == ("http://somewhere", 20, "m1", {}, [])
    assert reply["choices"] == [{"index": 0, "message": {"role": "assistant", "content": "c"}, "finish_reason": "stop"}]
    assert reply["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert failed == [None] * 4
    assert "a key" not in json.dumps(told["sent"])
    assert told["sent"][-1] == ["tool.call", {"name": "find_product", "arguments": '{"q": "x"}'}]


# -- pages

PRODUCTS = tuple(generate(2_000, seed=9))
WORD = PRODUCTS[0].title.split()[0]
SEARCHES: list[dict[str, object]] = [
    {"q": WORD, "page": 1},
    {"q": WORD, "page": "2"},
    {"q": WORD, "page": "03"},
    {"q": WORD},
    {"q": WORD, "page": None},
    {"q": WORD, "page": 6},
    {"q": WORD, "page": -1},
    {"q": WORD, "page": 1.0},
    {"q": WORD, "page": "two"},
    {"q": WORD, "page": "²"},
    {"q": WORD, "page": "9" * 5000},
    {"q": WORD, "page": [2, 3]},
    {"page": 1},
    {"q": "", "page": 1},
    {"q": f"{WORD}+{PRODUCTS[1].title.split()[0]}", "page": 1},
    {"q": f"{WORD}%27s", "page": 1},
    {"q": 7, "page": 1},
    {"q": WORD, "page": 1, "price": "0-300", "sort": "priceasc"},
    {"q": WORD, "page": 1, "price": "above:10", "service": "lazmall", "sort": "default"},
    {"q": WORD, "page": 1, "service": "official,COD"},
    {"q": WORD, "page": 1, "service": ["COD", "official"]},
    {"q": WORD, "page": 1, "shop_id": PRODUCTS[0].shop_id, "unknown": "x"},
    {"q": WORD, "page": 1, "shop_id": "", "price": None},
]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(PRODUCTS, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def client(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(GUEST))
    from arena_sdk import _link  # type: ignore[attr-defined]
    from sn15.proxy import ProxyClient  # type: ignore

    toolbox = make_toolbox("sn15", catalogue, PROBLEM)

    def transport(method: str, params: dict[str, object]) -> object:
        arguments = params["arguments"]
        outcome = toolbox.dispatch(
            str(params["name"]), arguments if isinstance(arguments, str) else json.dumps(arguments)
        )
        return {"result": outcome.result, "failure": None}

    _link.connect(transport, schemas=toolbox.schemas, models=())
    return ProxyClient()


def first_text(value: object) -> str:
    """A query parameter as it leaves `urlencode(doseq=True)` and arrives at a server that takes the first."""
    return str(value[0] if isinstance(value, list) else value)


@pytest.mark.parametrize("params", SEARCHES, ids=lambda params: json.dumps(params)[:60])
def test_a_search_gives_the_page_that_sn15s_server_gives(params: dict[str, object], client, catalogue: Catalogue):
    raw = {key: first_text(value) for key, value in params.items() if value is not None and key != "unknown"}
    request = SearchRequest(**{"q": "", "page": "", **raw})  # type: ignore[arg-type]
    expected = [json.loads(json.dumps(listed(product))) for product in catalogue.search(request)]
    assert client.get("/search/find_product", params) == expected


def test_details_come_for_known_ids_and_a_missing_argument_fails(client):
    ids = [PRODUCTS[0].product_id, "0", PRODUCTS[1].product_id]
    shown = client.get("/search/view_product_information", {"product_ids": ",".join(ids)})
    assert [row["product_id"] for row in shown] == [ids[0], ids[2]]
    assert client.get("/search/view_product_information", {}) is None
    assert client.get(f"/search/view_product_information?product_ids={ids[0]}")[0]["product_id"] == ids[0]
