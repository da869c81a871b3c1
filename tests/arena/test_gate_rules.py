"""Form, secrets, hostile files, ids and texts in literals: what is refused, what is held, what is left alone."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.gate import inspection
from arena.gate.inspection import inspect, inspect_isolated
from arena.gate.knowledge import make_knowledge
from arena.gate.likeness import Author
from arena.gate.rules import FINDINGS_PER_RULE, RULES_VERSION, what_to_change
from arena.gate.rules import RULES as PUBLISHED
from foundation.errors import ArenaError
from harness.agents.registry import cheater_source, reference_agents
from tests.arena.gate_stand import END, IDS, RULES, TABLE, TEXTS, gate, knowledge, make_neighbour, rules_met

REFUSED = {
    "os under an alias": ("import os as o\nx = [o]", "import"),
    "star": ("from json import *", "import"),
    "relative": ("from . import tools", "import"),
    "allowed package, refused module": ("import urllib.robotparser", "import"),
    "pickle": ("import pickle", "decoder-import"),
    "io of a module": ("import logging\nx = logging.io.open", "import"),
    "frame": ("def f(e):\n    return e.tb_frame", "attribute"),
    "folded dunder": ("x = getattr([], '__ba' + 'se__')", "attribute"),
    "wide letters that fold to eval": ("x = \uff45\uff56\uff41\uff4c", "builtin"),
    "zero width in a string": ("x = 'zero\u200bwidth'", "invisible"),
    "bidi in a comment": ("x = 1  # \u202e abc", "invisible"),
    "foreign global": ("def f():\n    global \u0430\n    \u0430 = 1", "identifier"),
    "ids": (f"T = {list(TABLE)}", "id-table"),
    "pasted key": ("# AKIAABCDEFGHIJKLMNOP", "secret"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_broken_rule_rejects_and_names_its_line(kind: str) -> None:
    body, rule = REFUSED[kind]
    report = gate(f"# first\n\n{body}")
    lines = {found.line for found in report.findings if found.rule == rule}
    assert report.outcome == "reject" and lines & set(range(3, 4 + body.count("\n")))


FORM = {
    "not utf-8": (b"x = '\xff'" + END.encode(), "encoding", "A1001", 1),
    "byte order mark": (b"\xef\xbb\xbf" + END.encode(), "encoding", "A1001", 1),
    "cookie after a carriage return": (b"# a\r# coding=cp1252" + END.encode(), "encoding", "A1001", 2),
    "too large": (b"#" * 1_000_001, "size", "A1004", 0),
    "not Python": (b"def agent_main(problem:\n", "parse", "A1002", 1),
    "NUL": (b"x = 1\0" + END.encode(), "parse", "A1002", 0),
    "nested calls": (b"x = " + b"(" * 5_000, "parse", "A1002", 1),
    "nested signs": (b"x = " + b"-" * 50_000 + b"1", "parse", "A1002", 0),
    "endless number": (b"\nx = 0x" + b"f" * 4_000 + END.encode(), "parse", "A1002", 2),
    "deep tree": (b"x = " + b"-" * 150 + b"1" + END.encode(), "depth", "A1002", 0),
    "empty": (b"", "entry", "A1002", 0),
    "entry in a class": (b"class A:\n    def agent_main(self, p): pass\n", "entry", "A1002", 0),
    "entry with two arguments": (b"def agent_main(a, b): pass\n", "entry", "A1002", 1),
    "asynchronous entry": (b"async def agent_main(p): pass\n", "entry", "A1002", 0),
}


@pytest.mark.parametrize("kind", FORM)
def test_a_file_that_is_no_agent_gets_its_code(kind: str) -> None:
    source, rule, code, line = FORM[kind]
    report = inspect(source, RULES, knowledge())
    assert (rule, line) in {(found.rule, found.line) for found in report.rejections}
    assert code in {PUBLISHED[found.rule].code for found in report.rejections}


def test_an_entry_that_can_be_called_with_one_argument_is_one() -> None:
    for entry in ("p", "p, k=1", "*a", "p, /, **k"):
        assert inspect(f"# coding: utf-8\ndef agent_main({entry}): pass\n", RULES, knowledge()).outcome == "accept"


def test_a_pasted_credential_is_never_repeated() -> None:
    key = "sk-abcdefghij0123456789abcd"
    report = gate(f"NOTE = '{key}' (")
    (found,) = [one for one in report.findings if one.rule == "secret"]
    assert key not in str(report) and "revoke it" in what_to_change(found.rule, found.detail)
    assert "secret" not in rules_met(gate("TOKEN = 'your-token-here'"))


# -- ids and texts
@pytest.mark.parametrize("separator", [" ", ",", "\n", "-", "/ product "])
@given(chosen=st.lists(st.sampled_from(IDS), min_size=3, max_size=8, unique=True))
def test_three_ids_are_a_table(separator: str, chosen: list[str]) -> None:
    report = gate(f"T = {separator.join(chosen)!r}")
    assert "id-table" in rules_met(report) and report.severity == "integrity"


TABLES = {
    "integers": f"{[int(value) for value in TABLE]}",
    "floats": f"{[float(value) for value in TABLE]}",
    "bytes": f"{[value.encode() for value in TABLE]}",
    "keys": f"{dict.fromkeys(TABLE, 1)}",
    "pieces added": "[" + ", ".join(f"{value[:4]!r} + {value[4:]!r}" for value in TABLE) + "]",
    "pieces joined": "[" + ", ".join(f"''.join(['{value[:4]}', '{value[4:]}'])" for value in TABLE) + "]",
    "packed": f"'7{''.join(TABLE)}'",
    "separated digits": repr("-".join("".join(TABLE))),
}


@pytest.mark.parametrize("kind", TABLES)
def test_ids_in_a_cheap_disguise_are_a_table(kind: str) -> None:
    assert "id-table" in rules_met(gate(f"T = {TABLES[kind]}"))


def test_ids_in_names_are_a_table() -> None:
    assert "id-table" in rules_met(gate("\n".join(f"p_{value} = 1" for value in TABLE)))


def test_fewer_ids_one_repeated_and_other_numbers_are_no_table() -> None:
    others = [str(int(value) + 1) for value in TABLE]
    for literal in (TABLE[:2], [TABLE[0]] * 9, TABLE[0] * 9, others, ["9" + value + "9" for value in TABLE]):
        assert gate(f"T = {literal!r}").findings == ()


def test_a_known_text_is_held_wherever_it_stands() -> None:
    for text in (TEXTS[0], TEXTS[1][::-1], f"Example: {TEXTS[2].upper()}!"):
        assert rules_met(gate(f"T = {text!r}")) == {"benchmark-text"}
    assert gate(f"T = {' '.join(TEXTS[2].split()[:5])!r}").findings == ()


def test_real_files_hold_no_table() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    dense = make_knowledge((str(number) for number in range(10**8, 10**9, 5_003)), TEXTS, [], RULES)
    for name in ("argparse", "calendar", "csv", "dataclasses", "difflib", "fractions", "heapq", "ipaddress", "uuid"):
        met = rules_met(inspect((library / f"{name}.py").read_bytes(), RULES, dense))
        assert not met & {"id-table", "benchmark-text", "secret"}, name


def test_knowledge_is_the_same_in_any_order_and_another_id_changes_its_hash() -> None:
    one = make_knowledge(IDS, TEXTS, [END], RULES)
    assert one.inputs_sha256 == make_knowledge(reversed(IDS), TEXTS[::-1], [END], RULES).inputs_sha256
    assert one.inputs_sha256 != make_knowledge(IDS[1:], TEXTS, [END], RULES).inputs_sha256
    with pytest.raises(PermissionError):  # nor can a child change it
        os.write(one.file.fileno(), b"x")
    assert len(make_knowledge(["12345", "0123456", "a123456", "1234567"], [], [], RULES).product_ids) == 1


# -- reports
def test_the_shipped_agents_pass_and_the_cheater_fails_on_its_table() -> None:
    for agent in reference_agents():
        if agent.name != "cheater":
            assert inspect(agent.source, RULES, knowledge()).outcome == "accept"
    report = inspect(cheater_source(IDS[:3]), RULES, knowledge())
    assert rules_met(report) == {"id-table"} and report.failure is not None and report.failure.code == "A1005"


def test_a_report_can_be_repeated_is_bounded_and_counts_its_costliest_class() -> None:
    report = gate("x = eval\n" * 5_000)
    assert report == gate("x = eval\n" * 5_000) and len(report.findings) == FINDINGS_PER_RULE
    assert (report.rules_version, report.inputs_sha256) == (RULES_VERSION, knowledge().inputs_sha256)
    assert gate(f"import subprocess\nT = {TABLE}").severity == "integrity"
    severities = [each.severity for each in (report, inspect(b"\xff", RULES, knowledge()), gate("x = 1"))]
    assert severities == ["security", "form", None]


@given(st.one_of(st.binary(max_size=400), st.text(max_size=300)))
def test_no_input_raises(source: bytes | str) -> None:
    assert inspect(source, RULES, knowledge()).outcome in ("accept", "review", "reject")


@given(st.data())
def test_no_mutation_of_a_real_agent_raises(data: st.DataObject) -> None:
    source = reference_agents()[0].source
    start = data.draw(st.integers(0, len(source)))
    stop = data.draw(st.integers(start, len(source)))
    inserted = data.draw(st.sampled_from(["", "\x00", "(", "'''", "\\", "\n  ", "é", "0x" + "f" * 9, "1" * 5_000]))
    report = inspect(source[:start] + inserted + source[stop:], RULES, knowledge())
    assert report.outcome in ("accept", "review", "reject")


SLOW = "x = y.z(y)\n" * 60_000 + END


@pytest.mark.parametrize(
    "source", [reference_agents()[0].source, cheater_source(IDS[:3]), b"\xff\xfe", "x = (", "x = '\ud800'" + END]
)
def test_the_report_is_the_one_of_this_process(source: str | bytes) -> None:
    author = Author(agent_version_id="ab12", miner_hotkey="one", commitment_block=1, is_public=True)
    neighbours = [make_neighbour(author, reference_agents()[0].source, is_winner=True)]
    mine = Author(agent_version_id="cd34", miner_hotkey="two", commitment_block=2, miner_coldkey="three")
    alone = inspect_isolated(source, RULES, knowledge(), neighbours, mine)
    assert alone == inspect(source, RULES, knowledge(), neighbours, mine)


ALIKE = {
    "a builtin that only site gives": ("def agent_main(p):\n    exit()\n", "reject"),
    "a name that is no text": (f"import os\nget = getattr(os, chr(0xD800))\n{END}", "reject"),
    "nothing, endlessly often": (f"x = '' * {10**20} + 'a' * -{10**20}\n{END}", "accept"),
    "an attribute named as a table is": (f"def f(T, o):\n    o.T = {{}}\n    return T[type(o)]\n{END}", "review"),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_here_and_in_a_process_of_its_own_a_source_gets_one_verdict(kind: str) -> None:
    source, outcome = ALIKE[kind]
    report = inspect(source, RULES, knowledge())
    assert (report.outcome, inspect_isolated(source, RULES, knowledge())) == (outcome, report)


def test_a_source_that_uses_up_time_is_rejected() -> None:
    report = inspect_isolated(SLOW, RULES, knowledge(), cpu_limit_s=1)
    assert report.outcome == "reject" and "SIGXCPU" in report.findings[0].detail


def test_a_host_that_is_too_slow_or_starts_no_child_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArenaError) as caught:
        inspect_isolated(SLOW, RULES, knowledge(), wall_limit_s=0.3)
    assert caught.value.failure.code == "V2004" and caught.value.entry.is_retryable
    assert [each for each in psutil.Process().children() if "arena.gate.inspection" in each.cmdline()] == []
    monkeypatch.setattr(inspection.sys, "executable", "/nonexistent/python")
    with pytest.raises(ArenaError, match="V2004"):
        inspect_isolated(END, RULES, knowledge())


def test_a_child_out_of_memory_rejects_and_one_that_fails_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "python"
    monkeypatch.setattr(inspection.sys, "executable", str(child))
    child.write_text("#!/bin/sh\ncat > /dev/null\necho gone >&2\nexit $CODE\n")
    child.chmod(0o700)
    monkeypatch.setattr(inspection, "child_environment", lambda: {"CODE": str(inspection.EXIT_OUT_OF_MEMORY)})
    report = inspect_isolated(END, RULES, knowledge())
    assert report.outcome == "reject" and report.findings[0].detail == "the parser ran out of memory"
    monkeypatch.setattr(inspection, "child_environment", lambda: {"CODE": "1"})
    with pytest.raises(ArenaError, match=r"V2004.*ended with 1: gone"):
        inspect_isolated(END, RULES, knowledge())


def test_the_child_sees_no_secret_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "OPENAI_API_KEY" not in inspection.child_environment()
