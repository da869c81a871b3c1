"""The stand-ins of a guest: environment, log files, `requests` and `urllib` reach the host's paths or nothing."""

from __future__ import annotations

from tests.harness.test_shim_interface import guest


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
