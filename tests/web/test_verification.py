"""One record proven to somebody who trusts nobody: in the browser, and by the program that the page links."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.web.episode_stand import RUNNING
from tests.web.places import ASKED, traces_of


def checks_of(visitor) -> list[tuple[str, str]]:
    """Class and text of each line, once the last is there."""
    visitor.page.wait_for_selector("#checks[aria-busy=false]")
    return [(one.get_attribute("class"), one.inner_text()) for one in visitor.page.locator("#checks li").all()]


def test_a_public_record_is_checked_in_the_browser(visitor, served):
    validator, seq = traces_of(served.http, ASKED)[0].split("/")
    visitor.go(f"/verify?validator={validator}&record={seq}")
    found = checks_of(visitor)
    assert [kind for kind, _ in found] == ["yes"] * 3, found
    words = ("stands in the log", "bytes have the hash", "trace has the hash")
    assert all(word in said for word, (_, said) in zip(words, found, strict=True))
    assert f"/proofs/{validator}/{seq}" in visitor.page.inner_text("#command")
    assert visitor.elsewhere == [] and visitor.said == []


def test_a_record_under_seal_is_proven_without_what_it_holds(visitor, served):
    """The last record of the race under way."""
    validator = served.site.author.signer.hotkey
    visitor.go("/verify")
    visitor.page.fill("input[name=record]", str(served.site.size))
    visitor.page.click("button")
    found = checks_of(visitor)
    assert [kind for kind, _ in found] == ["yes"] * 2 and "not public here" in found[-1][1]
    assert RUNNING.encode() not in served.http.get(f"/proofs/{validator}/{served.site.size}").content


@pytest.mark.parametrize("part", ["content_sha256", "prev", "inclusion", "checkpoint", "seq"])
def test_a_proof_that_was_changed_does_not_hold_in_the_browser(visitor, served, part, tmp_path):
    validator, seq = traces_of(served.http, ASKED)[0].split("/")
    proof = served.http.get(f"/proofs/{validator}/{seq}").json()
    proof[part] = changed(proof[part], part)
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proof))
    visitor.go("/verify")
    visitor.page.set_input_files("input[name=proof]", file)
    assert "no" in [kind for kind, _ in checks_of(visitor)]


def changed(value: object, part: str) -> object:
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return [value[0][::-1], *value[1:]]
    if part == "checkpoint":
        lines = str(value).split("\n")
        return "\n".join([*lines[:2], lines[2][::-1], *lines[3:]])  # the signature over it is the command's to check
    return str(value)[::-1]


def test_the_program_on_the_page_checks_the_proof_of_the_page(served, tmp_path):
    validator, seq = traces_of(served.http, ASKED)[0].split("/")
    page = served.http.get("/verify").text
    assert 'href="/static/verify_proof.py"' in page
    program, proof = tmp_path / "verify_proof.py", tmp_path / "proof.json"
    program.write_bytes(served.http.get("/static/verify_proof.py").content)
    assert program.read_text().count("\n") <= 200
    proof.write_bytes(served.http.get(f"/proofs/{validator}/{seq}").content)
    done = subprocess.run([sys.executable, "-I", program, proof], capture_output=True, text=True)
    assert done.returncode == 0 and f"record {seq} of {validator} stands in its log" in done.stdout
    proof.write_bytes(proof.read_bytes().replace(b'"seq":', b'"seq":1'))
    assert subprocess.run([sys.executable, "-I", program, proof], capture_output=True).returncode == 1


def test_what_no_checkpoint_covers_has_no_proof(served):
    validator = served.site.author.signer.hotkey
    for target in (f"/proofs/{validator}/{served.site.size + 1}", "/proofs/nobody/1"):
        answer = served.http.get(target)
        assert answer.status_code == 404 and answer.json()["code"] == "V2082"
