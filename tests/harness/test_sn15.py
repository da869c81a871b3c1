"""Files written for SN15: its interface and pages as the shim gives them, its agents in a jail, and the stand-ins."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.catalogue.port import Catalogue, SearchRequest
from harness.catalogue.synthetic import generate
from harness.limits import EpisodeLimits
from harness.session import Episode
from harness.tools.port import listed
from harness.tools.registry import environment_problem, make_toolbox, profile_schemas
from harness.trace import ToolCall
from problems.model import BUCKETS, Problem, RewardItem
from tests.harness.agent_stand import is_success, play, problems
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.jail_stand import best_sandbox, needs_jail, reference_sandbox

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
_link.transport, _link.schemas, _link.models = transport, {profile_schemas("sn15")!r}, ("m1", "m2")
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
    {"q": WORD},
    {"q": WORD, "page": "03"},
    {"q": WORD, "page": 6},
    {"q": WORD, "page": 1.0},
    {"q": WORD, "page": "²"},
    {"q": WORD, "page": "9" * 5000},
    {"q": WORD, "page": [2, 3]},
    {"page": 1},
    {"q": f"{WORD}%27s", "page": 1},
    {"q": 7, "page": 1},
    {"q": WORD, "page": 1, "price": "0-300", "sort": "priceasc"},
    {"q": WORD, "page": 1, "price": "above:10", "service": "lazmall", "sort": "default"},
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

    toolbox = make_toolbox("sn15", catalogue)

    def transport(method: str, params: dict[str, object]) -> object:
        arguments = params["arguments"]
        outcome = toolbox.dispatch(
            str(params["name"]), arguments if isinstance(arguments, str) else json.dumps(arguments)
        )
        return {"result": outcome.result, "failure": None}

    monkeypatch.setattr(_link, "transport", transport)
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


# -- the stand-ins


def test_the_environment_is_a_plain_dict_that_names_the_temporary_folder_alone() -> None:
    program = """
import os
from os import environ, getenv
out = [type(os.environ) is dict, environ is os.environ, sorted(set(environ) - {"TMPDIR"}), getenv("PATH", "none"),
       os.environ.get("SANDBOX_MODEL", "m")]
"""
    assert guest(program)["out"] == [True, True, [], "none", "m"]


def test_a_log_file_is_not_written_and_other_handlers_work() -> None:
    program = """
import logging, os, sys
for name in list(sys.modules):
    if name.split(".")[0] == "logging": del sys.modules[name]
import logging
logging.basicConfig(filename="/tmp/guest-standin.log", level=logging.INFO)
handler = logging.FileHandler("/nowhere/agent.log", mode="a", encoding="utf-8")
logging.getLogger("a").addHandler(handler)
logging.getLogger("a").warning("x")
out = [os.path.exists("/tmp/guest-standin.log"), isinstance(handler, logging.NullHandler),
       [type(one).__name__ for one in logging.getLogger().handlers]]
"""
    assert guest(program)["out"] == [False, True, ["FileHandler"]]


def test_requests_reach_the_proxys_paths_through_the_host_and_no_other_address() -> None:
    program = """
import requests, requests.exceptions
from requests.adapters import HTTPAdapter
session = requests.Session()
session.mount("http://", HTTPAdapter(max_retries=3))
base = "http://proxy:80"
out = [requests.get(base + "/search/find_product", params={"q": "x", "page": 1}, timeout=3).json(),
       session.get(base + "/search/find_product?q=y&page=1").status_code]
asked = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
reply = session.post(base + "/inference/chat/completions", json=asked, headers={"Authorization": "Bearer k"})
out += [reply.ok, reply.json()["choices"][0]["message"]["content"]]
try:
    requests.post(base + "/environment/call", json={}).raise_for_status()
except requests.exceptions.HTTPError as error:
    out.append(error.response.status_code)
for url in ("https://hooks.example/x", "http://proxy:81/", "ftp://proxy/x", "", "http://proxy.example:80/"):
    try:
        requests.post(url, json={})
    except requests.ConnectionError as error:
        out.append("no network" in str(error))
"""
    told = guest(program)
    assert told["out"] == [[], 200, True, "c", 404, *[True] * 5]
    assert [method for method, _ in told["sent"]] == ["tool.call", "tool.call", "llm.chat"]
    assert "Bearer" not in str(told["sent"])


def test_urllib_opens_nothing_and_its_parsing_is_the_real_one() -> None:
    program = """
import urllib.parse
import urllib.error
import urllib.request
from urllib.request import Request, urlopen
out = [urllib.parse.quote("a b")]
for opened in (lambda: urlopen(Request("http://proxy/", data=b"x")), lambda: urllib.request.urlopen("file:///etc/passwd")):
    try:
        opened()
    except urllib.error.URLError as error:
        out.append("no network" in error.reason)
"""
    assert guest(program)["out"] == ["a%20b", True, True]


# -- the present contract

PROBLEMS = {problem.bucket: problem for problem in problems()}
ENVIRONMENT_AGENT = Path(__file__).with_name("sn15_environment_agent.py").read_text("utf-8")


@pytest.mark.parametrize("bucket", BUCKETS)
@needs_jail
def test_an_agent_of_the_present_contract_runs_unmodified_in_a_jail_and_its_calls_are_the_models(bucket: str) -> None:
    episode = play(ENVIRONMENT_AGENT, PROBLEMS[bucket], best_sandbox(), profile="environment")
    body = episode.body
    assert (body.stop, body.failure) == ("terminated", None), episode.exit.output_tail
    calls = [event for event in body.events if isinstance(event, ToolCall)]
    assert body.is_agentic and {call.emitter for call in calls} == {"llm"}
    assert [call.name for call in calls][-2:] == ["recommend_product", "terminate"]
    assert is_success(body, PROBLEMS[bucket])
    told = [step["environment_result"]["calls"] for step in json.loads(body.claim)]
    assert [done["observation"]["done"] for turn in told for done in turn][-1] is True
    assert sum(map(len, told)) == len(calls)  # the turn that each step sent twice was executed once


def test_the_searches_of_the_older_contract_are_gone_and_an_undeclared_argument_is_left_out() -> None:
    source = """
from src.agent.proxy_client import ProxyClient
def agent_main(problem_data):
    proxy, environment = ProxyClient(), problem_data["environment"]
    gone = proxy.get("/search/find_product", {"q": "lamp", "page": 1})
    action = {"name": "find_product", "args": {"q": "lamp", "colour": "red"}}
    envelope = {**environment["binding"], "call_id": "a", "idempotency_key": "a", "turn": 1, "action": action}
    return [gone, proxy.post("/environment/call", envelope)["observation"]["error"]]
"""
    episode = play(source, PROBLEMS["product"], reference_sandbox(source), profile="environment")
    assert json.loads(episode.body.claim) == [None, None], episode.exit.output_tail
    assert "410" in episode.exit.output_tail
    (call,) = [event for event in episode.body.events if isinstance(event, ToolCall)]
    assert (call.ignored_parameters, json.loads(call.arguments)) == (("colour",), {"q": "lamp", "colour": "red"})


ENVELOPES = [
    ({"turn": 2}, 409),
    ({"turn": 0}, 422),
    ({"turn": True}, 422),
    ({"session_id": "another"}, 409),
    ({"tool_contract_version": "oro_task_tools_v2"}, 409),
    ({"call_id": ""}, 422),
    ({"idempotency_key": None}, 422),
    ({"calls": [], "action": None}, 422),
    ({"calls": [{"call_id": "b", "action": {}}]}, 422),
    ({"action": "find_product"}, 422),
    ({"calls": [{"call_id": "b", "action": {}}] * 2, "action": None}, 422),
    ({"calls": [{"call_id": f"{n}", "action": {}} for n in range(17)], "action": None}, 422),
    ({"tool_nonces": {"a": "b"}}, None),
]


def test_an_envelope_is_refused_as_sn15_refuses_it_and_extra_fields_are_passed_over() -> None:
    problem = Problem(problem_id="p", bucket="product", query="q", rewards=())
    told = guest(f"""
problem = json.loads({_problem_text(problem)!r})
sn15.open_problem(problem)
from src.agent.proxy_client import ProxyClient
client = ProxyClient()
good = {{**problem["environment"]["binding"], "call_id": "a", "idempotency_key": "a", "turn": 1,
        "action": {{"name": "find_product", "args": {{"q": "x"}}}}}}
out = []
for change in json.loads({json.dumps([change for change, _ in ENVELOPES])!r}):
    answer = client.post_verbose("/environment/call", {{**good, **change}})
    out.append(answer.error and answer.error["status"])
out.append(client.post_verbose("/environment/call", [1]).error["status"])
out.append(client.post_verbose("/environment/call", {{**good, "action": {{"name": "terminate"}}}}).error["status"])
out.append(len(problem["environment"]["policy_view"]["tools"]))
""")
    assert told["out"] == [*(status for _, status in ENVELOPES), 422, 409, 7]
    assert [params["name"] for _, params in told["sent"]] == ["find_product"]


def test_after_terminate_a_turns_other_calls_are_told_that_it_is_over() -> None:
    problem = Problem(problem_id="p", bucket="product", query="q", rewards=())
    told = guest(f"""
problem = json.loads({_problem_text(problem)!r})
sn15.open_problem(problem)
calls = [{{"call_id": n, "action": {{"name": name, "args": {{}}}}}} for n, name in
         (("1", "find_product"), ("2", "terminate"), ("3", "find_product"))]
session = sn15.session()
turn = {{**problem["environment"]["binding"], "call_id": "a", "idempotency_key": "a", "turn": 1, "calls": calls}}
out = [[done["observation"]["done"] for done in session.call(turn)["calls"]], session.call(turn)["replayed"]]
try:
    session.call({{**turn, "call_id": "b", "idempotency_key": "b", "turn": 2}})
except Exception as error:
    out.append([error.status, str(error)])
""")
    assert told["out"] == [[False, True, True], True, [409, "session already reached a terminal observation"]]
    assert [params["name"] for _, params in told["sent"]] == ["find_product", "terminate"]


def _problem_text(problem: Problem) -> str:
    return msgspec.json.encode(environment_problem(problem, EpisodeLimits())).decode()


# -- a ReAct agent


def tool_calls(episode: Episode) -> list[ToolCall]:
    return [event for event in episode.body.events if isinstance(event, ToolCall)]


AGENT = """
from src.agent.agent_interface import Tool, create_dialogue_step, execute_tool_call
from src.agent.proxy_client import ProxyClient
proxy = ProxyClient()
@Tool
def find_product(q, page=1):
    return proxy.get("/search/find_product", {"q": q, "page": page})
@Tool
def recommend_product(product_ids):
    return "ok"
@Tool
def terminate(status="success"):
    return "ok"
def said(name, **parameters):
    return {"name": name, "parameters": parameters, "tool_call_id": "x", "result": "made up"}
def agent_main(problem):
    hits = execute_tool_call("find_product", {"q": problem["query"][:40]})
    ids = [hit["product_id"] for hit in hits["result"]]
"""


def settled(lines: str) -> Episode:
    source = AGENT + "".join(f"    {line}\n" for line in lines.splitlines())
    return play(source, PROBLEMS["product"], reference_sandbox(source))


def names_of(episode: Episode) -> list[str]:
    return [call.name for call in tool_calls(episode)]


SAID = """calls = [hits, said('recommend_product', product_ids=ids[0]), said('terminate')]
return [create_dialogue_step('t', calls, '', '', 1)]"""


def test_a_recommendation_that_only_stands_in_the_dialogue_becomes_a_recorded_call() -> None:
    episode = settled(SAID)
    assert names_of(episode) == ["find_product", "recommend_product", "terminate"]
    assert {call.emitter for call in tool_calls(episode)} == {"code"}
    assert (episode.body.stop, episode.body.failure, episode.body.unsurfaced) == ("terminated", None, ())
    assert json.loads(episode.body.claim)[0]["completion"]["message"]["tool_call"][1]["result"] == "made up"


def test_the_last_recommendation_of_the_dialogue_wins_over_one_executed_before() -> None:
    lines = """r = execute_tool_call("recommend_product", {"product_ids": ids[0]})
return [create_dialogue_step("t", [r, said("recommend_product", product_ids=ids[1])], "", "", 1)]"""
    episode = settled(lines)
    assert names_of(episode).count("recommend_product") == 2
    assert episode.body.recommended == (json.loads(tool_calls(episode)[0].result)[1]["product_id"],)
