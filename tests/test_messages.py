"""docs/messages.md is what the product says today, and the sentences that stopped readers are gone."""

from __future__ import annotations

import re

import pytest

from tests.messages.listing import ROOMS, ROOT, page

LISTED = (ROOT / "docs" / "messages.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *(ROOT / "harness" / "sandbox" / "guest").glob("*.md"), *ROOT.glob("training/corpus/*.j2")]
# what stood in each, so that neither it nor a sister of it comes back
RIDDLES = (
    r"last heartbeat .* ago, then up for",
    r"waited for no longer",
    r"since \{\} tries",
    r"read the chain's error in the result row",
    r"the command stops; nothing already written is lost ?/ ?fix",
    r"is not a setting; did you mean",
    r"wallet or hotkey cannot be read",
    r"recorded and retried / fix|restarts when the endpoint answers a probe",
    r"check the chain endpoint",
    r"held against \{\}|of \{\} sources of training",
    r"lineage is\s+asked first whether",
    r"the first line again with",
    r"[Ww]hat the gate holds for a person is decided",
    r"released races whole|all else as stubs",
    r"every reject with its code, a funnel page",
    r"a killed run goes on, and a guard ends",
    r"looks whole from inside",
    r"that there was no quorum, or none",
    r"a later export brings them",
    r"before the budget is believed",
    r"a call that stood there is an echo|Do not write calls into the prompt",
    r"\{\} ids, plain|ids, as they are",
    r"bound leaves to problems not seen",
    r"what nobody names",
    r"run `arena validator --dry-run` to see",
)


def test_the_list_is_current() -> None:
    assert page() == LISTED, "python -m tests.messages > docs/messages.md"


@pytest.mark.parametrize("riddle", RIDDLES)
def test_a_riddle_is_gone(riddle: str) -> None:
    texts = {"docs/messages.md": LISTED, **{path.name: path.read_text("utf-8") for path in PAGES}}
    for room in ROOMS:  # help and sentences broken over lines stand whole in the list, what templates say does not
        texts |= {str(path): path.read_text("utf-8") for path in (ROOT / room).rglob("*.py")}
    assert not [name for name, text in texts.items() if re.search(riddle, text)]
