"""Every page in a real browser, with and without script; and a record proven there to somebody who trusts nobody."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

from arena.records.proof import encode_proof
from tests.arena.test_records_proof import proven
from tests.web.site_stand import ASKED, NAMES, PUBLISHED, every_page, traces_of


def test_no_page_is_a_barrier_or_asks_for_anything_elsewhere(visitor, served):
    """Findings of axe, sideways scrolling, requests for something elsewhere, script errors."""
    wrong: dict[str, list[str]] = {}
    for name, path in every_page(served.http).items():
        visitor.go(path)
        found = visitor.faults() + [f"{wide} px too wide" for wide in visitor.too_wide() if wide]
        wrong[name] = found + visitor.elsewhere + visitor.said
    assert {name: found for name, found in wrong.items() if found} == {}


def test_from_the_leaderboard_by_links_alone_to_a_trace_and_its_record(visitor):
    assert visitor.go("/") == 200
    assert visitor.follow("nav a:text-is('Races')") == "/races"
    assert visitor.follow(f"tbody a:text-is('{PUBLISHED[1]}')") == f"/races/{PUBLISHED[1]}"
    assert visitor.text("[aria-current=step]").startswith("published")
    assert visitor.follow("a.cell.solved").startswith("/traces/")
    visitor.follow(".crumbs a[href^='/agents/']")
    assert visitor.text("h1") in NAMES
    visitor.page.go_back()
    visitor.follow(f".crumbs a[href^='/races/{PUBLISHED[1]}/problems/']")
    assert "Who solved it" in visitor.text()
    assert "with=" in visitor.follow("td a:text-is('beside the first')")
    assert "They part at" in visitor.text() or "they do the same" in visitor.text()


# -- a record proven


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
    visitor.go(f"/verify?validator={validator}&record=999999")
    assert [(kind, said[:22]) for kind, said in checks_of(visitor)] == [("wait", "Can't be checked yet: ")]


def checks_of_file(visitor, file, proof: dict[str, object]) -> list[tuple[str, str]]:
    file.write_text(json.dumps(proof))
    visitor.go("/verify")
    visitor.page.set_input_files("input[name=proof]", file)
    return checks_of(visitor)


def test_a_proof_that_was_changed_does_not_hold_in_the_browser(visitor, served, tmp_path):
    validator, seq = traces_of(served.http, ASKED)[0].split("/")
    true = served.http.get(f"/proofs/{validator}/{seq}").json()
    lines = true["checkpoint"].split("\n")  # the signature over it is the command's to check
    other = {"content_sha256": true["content_sha256"][::-1], "prev": true["prev"][::-1], "seq": true["seq"] + 1}
    other |= {"inclusion": [true["inclusion"][0][::-1], *true["inclusion"][1:]]}
    other |= {"checkpoint": "\n".join([*lines[:2], lines[2][::-1], *lines[3:]])}
    for part, value in other.items():
        found = checks_of_file(visitor, tmp_path / "proof.json", true | {part: value})
        assert "no" in [kind for kind, _ in found], part


def test_an_older_checkpoint_is_checked_in_the_browser(visitor, tmp_path):
    with ThreadPoolExecutor(1) as pool:  # the browser's loop has this thread
        made = dict(pool.map(lambda older: (older, encode_proof(proven(4, older=older)[0])), (1, 6, 8)))
    for (older, raw), step in itertools.product(made.items(), (1, -1)):
        proof = json.loads(raw)
        proof["older"]["consistency"][0] = proof["older"]["consistency"][0][::step]
        found = checks_of_file(visitor, tmp_path / "proof.json", proof)
        assert [kind for kind, _ in found] == ["yes", "yes" if step == 1 else "no", "wait"]
        assert f"none of its first {older} records was changed" in found[1][1]
