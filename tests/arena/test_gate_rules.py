"""Form and naming rules: what is refused, what is looked at, and what honest agents may do."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.export.redaction import holds_secret
from arena.gate.inspection import inspect
from arena.gate.remedies import what_to_change
from arena.gate.report import FINDINGS_PER_RULE, GateReport
from arena.gate.rules import RULES as PUBLISHED
from arena.gate.rules import RULES_VERSION
from arena.policies import POLICIES
from arena.policy import Policy
from foundation.codes import CODES
from harness.agents.registry import ReferenceAgent, cheater_source, reference_agents
from tests.arena.gate_stand import END, IDS, RULES, TABLE, gate, knowledge, rules_met

README = Path(__file__).parents[2] / "arena" / "gate" / "README.md"

HONEST = {
    "native sdk": "from arena_sdk import llm, tools\nimport arena_sdk.tools",
    "sn15 interface": "from src.agent.agent_interface import Tool, execute_tool_call\n"
    "from src.agent.proxy_client import ProxyClient\n"
    "import src.agent.proxy_client\nc = src.agent.proxy_client.ProxyClient",
    "standard library": "import json, re, math, random, logging, collections.abc\nfrom concurrent.futures import wait",
    "getenv": "import os\nMODEL = os.getenv('MODEL', 'none')\nfrom os import getenv\nP = os.path.join('a', 'b')",
    "urllib.parse": "import urllib.parse\nq = urllib.parse.quote('a b')\nfrom urllib import parse",
    "stderr": "import sys\nprint('note', file=sys.stderr)",
    "literal_eval": "import ast\nx = ast.literal_eval('[1]')",
    "regular expressions": "import re\nP = re.compile(r'(\\d+) php')",
    "constant getattr": "def f(x):\n    return getattr(x, 'price', None)",
    "classes": "class A:\n    __slots__ = ('x',)\n\n    def __init__(self):\n"
    "        super().__init__()\n        self.input = 1",
    "common names": "def f(input, help, exit, system):\n    return input.modules, help.system, exit, system",
    "keyword list": "KEYWORDS = ['free shipping', 'waterproof'] * 3",
    "long url": "U = 'https://example.org/" + "aB3xQ9zK" * 12 + "'",
    "docstring with data": '"""' + "aB3xQ9zK7LmN2pRs" * 9 + '"""',
    "emoji and accents": "PROMPT = 'Merci \U0001f600 caf\u00e9'",
}

REFUSED = {
    "import os.system": ("import os\nx = os.system", "import"),
    "os under an alias": ("import os as o\nx = [o]", "import"),
    "os under an allowed name": ("import os as json\njson.system('id')", "import"),
    "from os": ("from os import execv", "import"),
    "subprocess": ("import subprocess", "import"),
    "socket": ("from socket import socket", "import"),
    "httpx": ("import httpx", "import"),
    "urllib.robotparser": ("import urllib.robotparser", "import"),
    "urllib.request by way of urllib": ("import urllib.parse\nx = urllib.request", "import"),
    "logging.config": ("import logging.config", "import"),
    "re-exported sys": ("from typing import sys", "import"),
    "re-exported private": ("from random import _os", "import"),
    "star": ("from json import *", "import"),
    "relative": ("from . import tools", "import"),
    "annotations evaluated": ("from typing import get_type_hints", "import"),
    "base64": ("from base64 import b64decode", "decoder-import"),
    "pickle": ("import pickle", "decoder-import"),
    "module as attribute": ("import logging\nx = logging.os", "attribute"),
    "private module as attribute": ("import random\nx = random._os.execv", "attribute"),
    "io of a module": ("import logging\nx = logging.io.open", "attribute"),
    "frame": ("def f(e):\n    return e.tb_frame", "attribute"),
    "globals of a function": ("x = agent_main.__globals__", "attribute"),
    "attrgetter with a dunder": (
        "from operator import attrgetter\nx = attrgetter('a.__class__.__base__')",
        "attribute",
    ),
    "folded dunder": ("x = getattr([], '__ba' + 'se__')", "attribute"),
    "open": ("x = open('/etc/passwd')", "builtin"),
    "import function": ("x = __import__('os')", "builtin"),
    "input called": ("x = input()", "builtin"),
    "wide letters that fold to eval": ("x = \uff45\uff56\uff41\uff4c", "builtin"),
    "zero width in a string": ("x = 'zero\u200bwidth'", "invisible"),
    "private use": ("x = '\ue000'", "invisible"),
    "foreign argument name": ("def f(\u0430):\n    pass", "identifier"),
    "foreign global": ("def f():\n    global \u0430\n    \u0430 = 1", "identifier"),
}

LOOKED_AT = {
    "zero width in a comment": ("x = 1  # zero\u200bwidth", "invisible-comment"),
    "getattr passed on": ("x = map(lambda n: getattr(int, n), ['real'])", "dynamic-attribute"),
    "io of an object": ("def f(x):\n    return x.io", "attribute-name"),
    "random token": (
        "x = 'q9Zr4kT8wXv2Lm7PbC5dHf3GjN6sYtRu1AeQoViKxEzWcBnMhJpUgDyFaSlOq0T9Zr4kX8wLv2Pm7CbH5dGf3N'",
        "entropy",
    ),
    "big integer": (f"x = {2**200}", "big-integer"),
}


@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_agent_has_no_finding(kind: str) -> None:
    assert gate(HONEST[kind]).findings == ()


@pytest.mark.parametrize("kind", REFUSED)
def test_a_broken_rule_rejects(kind: str) -> None:
    body, rule = REFUSED[kind]
    report = gate(body)
    assert rule in rules_met(report)
    assert report.outcome == "reject"


@pytest.mark.parametrize("kind", LOOKED_AT)
def test_a_heuristic_alone_never_rejects(kind: str) -> None:
    body, rule = LOOKED_AT[kind]
    report = gate(body)
    assert rules_met(report) == {rule}
    assert report.outcome == "review"
    assert report.failure is None


SECRETS = {
    "a constant": "NOTE = 'sk-abcdefghij0123456789abcd'",
    "a comment": "# AKIAABCDEFGHIJKLMNOP",
    "a password in an address": "URL = 'https://me:correct-horse@example.org'",
    "beside what does not parse": "API_KEY = 'q9Zr4kT8wXv2Lm7PbC5dHf3G' (",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_pasted_credential_is_rejected_with_its_line_and_never_repeated(kind: str) -> None:
    report = gate(f"\n\u00e9 = 1\n{SECRETS[kind]}\n")
    (found,) = [one for one in report.findings if one.rule == "secret"]
    assert (found.line, found.outcome, found.severity) == (3, "reject", "form")
    assert report.outcome == "reject" and found.detail.startswith("what looks like a credential (")
    assert not any(word in str(report) for word in re.findall(r"[\w-]{12,}", SECRETS[kind]))
    assert "revoke it" in what_to_change(found.rule, found.detail)


def test_what_the_gate_accepts_can_be_exported() -> None:
    assert "secret" not in rules_met(gate("TOKEN = 'your-token-here'\nKEY = 'products_found_so_far_by_query'"))
    assert holds_secret(SECRETS["a comment"].encode())
    many = gate("\n".join(f"K{n} = 'sk-abcdefghij0123456789{n:04}'" for n in range(200)))
    assert sum(one.rule == "secret" for one in many.findings) == FINDINGS_PER_RULE


@pytest.mark.parametrize("agent", reference_agents(), ids=lambda agent: agent.name)
def test_the_shipped_agents_pass(agent: ReferenceAgent) -> None:
    assert inspect(agent.source, RULES, knowledge()).outcome == "accept"


def test_the_shipped_cheater_fails_on_its_table() -> None:
    report = inspect(cheater_source(IDS[:3]), RULES, knowledge())
    assert rules_met(report) == {"id-table"}
    assert report.failure is not None
    assert report.failure.code == "A1005"


FORM = {
    "not utf-8": (b"x = '\xff'" + END.encode(), "encoding", "A1001", 1),
    "byte order mark": (b"\xef\xbb\xbf" + END.encode(), "encoding", "A1001", 1),
    "cookie": (b"#!x\n# -*- coding: latin-1 -*-" + END.encode(), "encoding", "A1001", 2),
    "cookie after a carriage return": (b"# a\r# coding=cp1252" + END.encode(), "encoding", "A1001", 2),
    "too large": (b"#" * 1_000_001, "size", "A1004", 0),
    "not Python": (b"def agent_main(problem:\n", "parse", "A1002", 1),
    "NUL": (b"x = 1\0" + END.encode(), "parse", "A1002", 0),
    "nested calls": (b"x = " + b"(" * 5_000, "parse", "A1002", 1),
    "nested signs": (b"x = " + b"-" * 50_000 + b"1", "parse", "A1002", 0),
    "deep tree": (b"x = " + b"-" * 150 + b"1" + END.encode(), "depth", "A1002", 0),
    "empty": (b"", "entry", "A1003", 0),
    "entry in a class": (b"class A:\n    def agent_main(self, p): pass\n", "entry", "A1003", 0),
    "entry without an argument": (b"def agent_main(): pass\n", "entry", "A1003", 1),
    "entry with two arguments": (b"def agent_main(a, b): pass\n", "entry", "A1003", 1),
    "entry with a required keyword": (b"def agent_main(a, *, b): pass\n", "entry", "A1003", 1),
    "asynchronous entry": (b"async def agent_main(p): pass\n", "entry", "A1003", 0),
}


@pytest.mark.parametrize("kind", FORM)
def test_a_file_that_is_no_agent_gets_its_code(kind: str) -> None:
    source, rule, code, line = FORM[kind]
    report = inspect(source, RULES, knowledge())
    assert (rule, line) in {(finding.rule, finding.line) for finding in report.rejections}
    assert report.severity in ("form", "security")
    assert code in {PUBLISHED[finding.rule].code for finding in report.rejections}


@pytest.mark.parametrize(
    "entry",
    [
        "def agent_main(p): pass",
        "def agent_main(p, k=1): pass",
        "def agent_main(*a): pass",
        "def agent_main(p, /, **k): pass",
    ],
)
def test_an_entry_that_can_be_called_with_one_argument_is_one(entry: str) -> None:
    assert inspect(f"# coding: utf-8\n{entry}\n", RULES, knowledge()).outcome == "accept"


def test_the_costliest_class_of_a_report_counts() -> None:
    assert gate("import os, subprocess\n").severity == "security"
    assert gate(f"import subprocess\nT = {TABLE}").severity == "integrity"
    assert inspect(b"\xff", RULES, knowledge()).severity == "form"
    assert gate("x = 1").severity is None


def test_a_hostile_file_makes_no_hostile_report() -> None:
    report = gate("x = eval\n" * 5_000)
    assert len(report.findings) == FINDINGS_PER_RULE
    assert all(len(finding.detail) <= 300 for finding in gate(f"x.{'a' * 5_000}__ = 1\nimport {'b' * 5_000}").findings)


def test_a_report_can_be_repeated() -> None:
    first, second = gate(f"T = {TABLE}\nx = eval"), gate(f"T = {TABLE}\nx = eval")
    assert first == second
    assert (first.rules_version, first.inputs_sha256) == ("gate/6", knowledge().inputs_sha256)


@given(st.binary(max_size=400))
def test_no_bytes_raise(data: bytes) -> None:
    assert inspect(data, RULES, knowledge()).outcome in ("accept", "review", "reject")


@given(st.text(max_size=300))
def test_no_text_raises_not_even_lone_surrogates(text: str) -> None:
    assert inspect(text + END, RULES, knowledge()).outcome in ("accept", "review", "reject")


@given(st.data())
def test_no_mutation_of_a_real_agent_raises(data: st.DataObject) -> None:
    source = reference_agents()[0].source
    start = data.draw(st.integers(0, len(source)))
    stop = data.draw(st.integers(start, len(source)))
    inserted = data.draw(st.sampled_from(["", "\x00", "(", "'''", "\\", "\n  ", "é", "0x" + "f" * 9, "1" * 5_000]))
    assert inspect(source[:start] + inserted + source[stop:], RULES, knowledge()).outcome in (
        "accept",
        "review",
        "reject",
    )


def test_every_rule_has_a_registered_code_and_stands_in_the_readme() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (reject|review) \| (integrity|security|form) \|", README.read_text(encoding="utf-8"), re.M
    )
    assert {rule.code for rule in PUBLISHED.values()} <= set(CODES)
    assert rows == [(rule.name, rule.outcome, rule.severity) for rule in PUBLISHED.values()]


def test_ordinary_library_code_is_not_taken_for_a_table() -> None:
    library = Path(re.__file__).parents[1]
    names = [
        "argparse",
        "calendar",
        "colorsys",
        "csv",
        "dataclasses",
        "difflib",
        "fractions",
        "heapq",
        "ipaddress",
        "uuid",
    ]
    for name in names:
        met = rules_met(inspect((library / f"{name}.py").read_bytes(), RULES, knowledge()))
        assert not met & {"id-table", "id-hits", "benchmark-text", "unsearched", "integer-array"}, name


def test_a_report_of_the_first_rules_is_still_read() -> None:
    old = (
        b'{"outcome":"review","findings":[{"rule":"similarity","outcome":"review","severity":"integrity","line":0,'
        b'"detail":"83 % contained in agent ab12"}],"rules_version":"gate/1","source_sha256":"aa","inputs_sha256":"bb"}'
    )
    report = msgspec.json.decode(old, type=GateReport)
    assert (report.rules_version, report.outcome, report.failure) == ("gate/1", "review", None)
    assert msgspec.json.encode(report) == old


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_every_shipped_policy_states_the_rules_of_this_release(policy: Policy) -> None:
    assert policy.gate.version == RULES_VERSION
    assert policy.gate.remnant_phrases == 100


HONEST_2 = {
    "names of modules as parameters": "import html, time\ndef f(html, time):\n    return [html, time]",
    "module or None": "import random\nx = random is None",
    "builtins as values": "x = sorted(map(str, [1]), key=len)\ny = {'int': int, 'f': float}",
    "types asked for": "def f(x):\n    return type(x) is str or isinstance(x, type(None)) or type(x).__name__",
    "type in an annotation": "def f(x: type[int], y: type | None) -> type:\n    return x",
    "parts of modules": "import json\ntry:\n    x = json.loads('1')\nexcept json.decoder.JSONDecodeError as e:\n"
    "    x = e.pos",
    "submodules": "import collections.abc\nimport concurrent.futures as cf\nx = collections.abc.Mapping\ny = cf.wait",
    "signature": "import inspect\ndef f(x):\n    return inspect.signature(x).parameters, inspect.getdoc(x)",
    "attribute dict": "class D(dict):\n    def __getattr__(self, n):\n        return self[n]\n"
    "    def __setattr__(self, n, v):\n        self[n] = v",
    "abstract base": "import abc\nclass A(metaclass=abc.ABCMeta):\n    pass",
    "operators": "import operator\nx = operator.itemgetter('a')\ny = operator.attrgetter('price')({}.get)",
    "format of a class name": "def f(self):\n    return '{0.__class__.__name__}'.format(self)",
    "sentinels": "A = '__none__'\nB = {'__all__': 1, '__default__': 2}",
    "prompts with braces": "P = 'Use {{\"a\": {x}}} and {y.name}'.format(x=1, y=2)",
    "log to stderr": "import logging, sys\nlogging.basicConfig(level=logging.INFO, stream=sys.stderr)\n"
    "sys.stderr.write('a')",
}


@pytest.mark.parametrize("kind", HONEST_2)
def test_an_honest_use_of_names_has_no_finding(kind: str) -> None:
    assert gate(HONEST_2[kind]).findings == ()
