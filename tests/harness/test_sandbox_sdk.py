"""The agents' SDK as an editor or a plain interpreter sees it, outside any jail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from openai.types.chat import ChatCompletion

from harness.catalogue.port import Catalogue, SearchRequest
from harness.catalogue.synthetic import generate
from harness.limits import EpisodeLimits
from harness.tools.functions import listed
from harness.tools.registry import Toolbox, environment_problem, profile_schemas
from harness.trace import ToolCall
from problems.model import BUCKETS, Problem, RewardItem
from tests.harness.agent_stand import is_success, play, problems
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.jail_stand import best_sandbox, needs_jail, reference_sandbox

GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"


def python(program: str) -> str:
    """Output of `program` under a bare interpreter that knows nothing but the standard library and the SDK."""
    bare = f"import sys; sys.path.insert(0, {str(GUEST)!r})\n"
    command = [sys.executable, "-I", "-S", "-c", bare + program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_it_imports_with_the_standard_library_alone_and_says_that_there_is_no_host():
    program = """
from arena_sdk import ToolError, llm, tools
print(tools.schemas(), llm.models())
for attempt in (lambda: tools.find_product(q="x"), lambda: llm.chat([{"role": "user", "content": "x"}])):
    try:
        attempt()
    except ToolError as error:
        print(error.message)
"""
    first, *hints = python(program).splitlines()
    assert first == "[] []"
    assert len(hints) == 2 and all("arena run" in hint for hint in hints)


def test_what_is_sent_and_how_answers_come_back():
    program = """
import json
from arena_sdk import ToolError, _link, llm, tools
sent = []
def transport(method, params):
    sent.append([method, params])
    if method == "llm.chat":
        return {"content": "c", "reasoning": "r", "tool_calls": [], "message": {"role": "assistant"},
                "finish_reason": "stop", "usage": {"prompt_tokens": 1}}
    failure = {"code": "A1050", "message": "no"} if params["name"] == "bad" else None
    return {"result": "[1]", "failure": failure}
_link.transport, _link.schemas, _link.models = transport, '[{"a": 1}]', ("m1", "m2")
got = [tools.find_product(q="x", page=2), tools.call("other", a=None, b=1), tools.execute("bad", "{broken")]
try:
    tools.call("bad")
except ToolError as error:
    got.append([error.code, error.message])
reply = llm.chat([{"role": "user", "content": "hi"}], temperature=0, tools=tools.schemas(), seed=4)
got += [reply.content == reply["content"] == "c", reply.message, reply.usage, json.loads(json.dumps(reply)) == reply]
print(json.dumps({"got": got, "sent": sent}))
"""
    out = json.loads(python(program))
    assert out["got"] == [
        [1], [1], "[1]", ["A1050", "no"], True, {"role": "assistant"}, {"prompt_tokens": 1}, True,
    ]  # fmt: skip
    assert out["sent"] == [
        ["tool.call", {"name": "find_product", "arguments": {"q": "x", "page": 2}}],
        ["tool.call", {"name": "other", "arguments": {"b": 1}}],
        ["tool.call", {"name": "bad", "arguments": "{broken"}],
        ["tool.call", {"name": "bad", "arguments": {}}],
        [
            "llm.chat",
            {"messages": [{"role": "user", "content": "hi"}], "model": "m1", "seed": 4, "tools": [{"a": 1}],
             "temperature": 0},
        ],
    ]  # fmt: skip


def test_the_typed_functions_have_the_parameters_of_the_schemas():
    program = """
import inspect, json
from arena_sdk import tools
print(json.dumps({name: list(inspect.signature(function).parameters) for name, function in vars(tools).items()
                  if inspect.isfunction(function) and not name.startswith("_")}))
"""
    typed = json.loads(python(program))
    for schema in json.loads(profile_schemas("sn15")):
        function = schema["function"]
        assert typed[function["name"]] == list(function["parameters"]["properties"]), function["name"]


# -- the page for miners

PAGE = (GUEST / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("source", BLOCKS, ids=["smallest", "agentic", "failures"])
def test_every_agent_of_the_miners_page_runs_and_recommends_what_a_search_brought(source: str):
    episode = play(source, problems()[0], reference_sandbox(source))
    assert episode.body.failure is None, episode.exit.output_tail
    assert episode.body.recommended and episode.body.unsurfaced == ()
    assert episode.body.is_agentic == ("tools.execute(" in source)


# -- files written for SN15: its interface and pages as the shim gives them, its agents in a jail, and the stand-ins


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
    read = ChatCompletion.model_validate(reply, strict=True)  # the type of the `openai` client
    assert read.to_dict() == reply and read.usage.total_tokens == 7 and read.choices[0].message.content == "c"
    assert failed == [None] * 4
    assert "a key" not in json.dumps(told["sent"])
    assert told["sent"][-1] == ["tool.call", {"name": "find_product", "arguments": '{"q": "x"}'}]


def test_under_the_contract_with_nonces_calls_are_posted_and_the_models_own_recommendation_is_the_answer():
    program = """
import requests
from src.agent.proxy_client import ProxyClient
def transport(method, params):
    sent.append([method, params])
    if method == "llm.chat":
        calls = [{"id": "1", "name": "recommend_product", "arguments": '{"product_ids": "7"}'}]
        return {"content": "", "reasoning": "", "tool_calls": calls, "message": {"role": "assistant"},
                "finish_reason": "tool_calls", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    return {"result": '{"ok": true}', "failure": None}
_link.transport = transport
client = ProxyClient()
client.post("/inference/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
out = []
if HANDS_ON:
    for body in ({"arguments": '{"q": "a"}', "nonce": "n", "call_id": "c"}, {"q": "a", "nonce": "n"}):
        out.append(requests.post(client.proxy_url + "/search/find_product", json=body).json())
sn15.settle([])
"""
    told = guest(f"HANDS_ON = True{program}")
    assert told["out"] == [{"ok": True}] * 2
    assert [params for method, params in told["sent"] if method == "tool.call"] == [
        {"name": "find_product", "arguments": '{"q": "a"}'},
        {"name": "find_product", "arguments": {"q": "a"}},
        {"name": "recommend_product", "arguments": '{"product_ids": "7"}'},
    ]
    assert [method for method, _ in guest(f"HANDS_ON = False{program}")["sent"]] == ["llm.chat"]


# -- pages

PRODUCTS = tuple(generate(2_000, seed=9))
WORD = PRODUCTS[0].title.split()[0]
SEARCHES: list[dict[str, object]] = [
    {"q": WORD},
    {"q": WORD, "page": "²"},
    {"q": f"{WORD}%27s", "page": 1},
    {"q": WORD, "page": 1, "service": ["COD", "official"]},
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

    toolbox = Toolbox("sn15", catalogue)

    def transport(method: str, params: dict[str, object]) -> object:
        arguments = params["arguments"]
        outcome = toolbox.dispatch(
            str(params["name"]), arguments if isinstance(arguments, str) else json.dumps(arguments)
        )
        return {"result": outcome.result, "failure": None}

    monkeypatch.setattr(_link, "transport", transport)
    return ProxyClient()


@pytest.mark.parametrize("params", SEARCHES, ids=lambda params: json.dumps(params)[:60])
def test_a_search_gives_the_page_that_sn15s_server_gives(params: dict[str, object], client, catalogue: Catalogue):
    given = {key: value for key, value in params.items() if value is not None and key != "unknown"}
    # a query parameter as it leaves `urlencode(doseq=True)` and arrives at a server that takes the first
    raw = {key: str(value[0] if isinstance(value, list) else value) for key, value in given.items()}
    request = SearchRequest(**{"q": "", "page": "", **raw})  # type: ignore[arg-type]
    expected = [json.loads(json.dumps(listed(product))) for product in catalogue.search(request)]
    assert client.get("/search/find_product", params) == expected


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


def test_a_copy_sets_no_attribute_of_another_object() -> None:
    program = """
from collections import UserDict
from dataclasses import asdict, dataclass
from types import SimpleNamespace
class Target: pass
class Other:
    target = None
    def __new__(cls): return cls.target or object.__new__(cls)
    def __getstate__(self): return (None, {"mark": 1})
class Namespace(SimpleNamespace, UserDict): __copy__ = None
@dataclass
class Box:
    held: object
reduced, other = {"__reduce_ex__": lambda v: (lambda: Target, (), (None, {"mark": 1}))}, Other()
Other.target, out = Target, []
for held in (other, SimpleNamespace(**reduced), Namespace(**reduced, data={})):
    try: out.append(str(held.copy() if isinstance(held, UserDict) else asdict(Box(held))))
    except TypeError: pass
out += [hasattr(Target, "mark"), asdict(Box({"a": SimpleNamespace(b=[Box(2), {3}])}))["held"]["a"].b[1:] == [{3}]]
"""
    assert guest(program)["out"] == [False, True]


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
    ({"turn": True}, 422),
    ({"session_id": "another"}, 409),
    ({"call_id": ""}, 422),
    ({"calls": [], "action": None}, 422),
    ({"calls": [{"call_id": "b", "action": {}}]}, 422),
    ({"calls": [{"call_id": "b", "action": {}}] * 2, "action": None}, 422),
    ({"calls": [{"call_id": f"{n}", "action": {}} for n in range(17)], "action": None}, 422),
    ({"tool_nonces": {"a": "b"}}, None),
]


def test_an_envelope_is_refused_as_sn15_refuses_it_and_extra_fields_are_passed_over() -> None:
    problem = Problem(problem_id="p", bucket="product", query="q", rewards=())
    text = msgspec.json.encode(environment_problem(problem, EpisodeLimits())).decode()
    told = guest(f"""
problem = json.loads({text!r})
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


# -- a ReAct agent


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
    calls = [hits, said('recommend_product', product_ids=ids[0]), said('terminate')]
    return [create_dialogue_step('t', calls, '', '', 1)]
"""


def test_a_recommendation_that_only_stands_in_the_dialogue_becomes_a_recorded_call() -> None:
    episode = play(AGENT, PROBLEMS["product"], reference_sandbox(AGENT))
    calls = [event for event in episode.body.events if isinstance(event, ToolCall)]
    assert [call.name for call in calls] == ["find_product", "recommend_product", "terminate"]
    assert {call.emitter for call in calls} == {"code"}
    assert (episode.body.stop, episode.body.failure, episode.body.unsurfaced) == ("terminated", None, ())
    assert json.loads(episode.body.claim)[0]["completion"]["message"]["tool_call"][1]["result"] == "made up"
