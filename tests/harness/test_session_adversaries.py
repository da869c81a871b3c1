"""Agents that want credit for what they did not do: answers that no search found, and calls that no model wrote.

Whole episodes with the real tools and the real gateway; only the model behind it plays a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules, ModelReply
from harness.limits import EpisodeLimits
from harness.session import EpisodePorts, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EvaluationBody
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.episode_stand import problem, reply, rules
from tests.harness.jail_stand import reference_sandbox

SHOP, OTHER_SHOP = "700100", "700200"
LAMP, SHADE, BAG = "1000000001", "1000000002", "1000000003"


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    products = (
        product(LAMP, "Red Reading Lamp", shop_id=SHOP, attributes={"Color": ["red"]}),
        product(SHADE, "Paper Lamp Shade", shop_id=SHOP),
        product(BAG, "Blue Canvas Bag", shop_id=OTHER_SHOP),
    )
    yield catalogue_of(products, tmp_path_factory.mktemp("catalogue"))


class Script:
    """An upstream that plays its replies in order, the last one for ever, and keeps what it was sent."""

    name = "script"

    def __init__(self, *replies: ModelReply) -> None:
        self._replies = list(replies) or [reply(content="ok")]
        self.sent: list[dict[str, object]] = []

    def complete(self, request: str, *_: object, **__: object) -> ModelReply:
        self.sent.append(json.loads(request))
        return self._replies[min(len(self.sent), len(self._replies)) - 1]

    def probe(self, request: str) -> None:
        return None


def play(catalogue: Catalogue, source: str, *replies: ModelReply, profile: str = "sn15") -> EvaluationBody:
    toolbox = Toolbox(profile, catalogue)
    gateway = Gateway(InferenceRules(models=("stand",)), [Script(*replies)], toolbox.schemas, EpisodeLimits())
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=reference_sandbox(source))
    return run_episode(source, problem(), ports, rules()).body


def agent(*lines: str) -> str:
    head = "import json\nfrom arena_sdk import ToolError, llm, tools\n"
    return head + "def agent_main(problem):\n" + "".join(f"    {line}\n" for line in lines)


# -- the surfaced rule, against the real tools

RECOMMEND = f"tools.recommend_product('{LAMP}')"
SAME_SHOP = "tools.find_products_in_same_shop(json.dumps([{}]))"
NOT_FOUND = {
    "recommended out of nowhere": (),
    "only viewed": (f"tools.view_product_information('{LAMP}')",),
    "passed among the words that find it": (f"tools.find_product(q='red lamp {LAMP}')",),
    "passed in a parameter that does not exist": (
        f"try: tools.call('find_product', q='red lamp', note='{LAMP}')\n    except ToolError: pass",
    ),
    "a shop search with the id in an unread field": (SAME_SHOP.format(f"{{'q': 'red lamp', 'id': '{LAMP}'}}"),),
    "a shop search with the id hidden by escapes": (
        'tools.find_products_in_same_shop(\'[{"q": "red lamp '
        + "".join(f"\\\\u{ord(digit):04x}" for digit in LAMP)
        + "\"}]')",
    ),
    "full-width digits behind more marks than any text has": (
        f"tools.find_product(q='red lamp {''.join(chr(0xFF10 + int(d)) for d in LAMP)} a' + chr(0x301) * 90)",
    ),
    "found, but after it was recommended": (RECOMMEND, "tools.find_product(q='bag')"),
}


@pytest.mark.parametrize("way", NOT_FOUND)
def test_an_answer_that_no_search_brought_does_not_count(way, catalogue):
    got = play(catalogue, agent(*NOT_FOUND[way], RECOMMEND))
    assert got.stop == "terminated", got.failure
    assert (got.recommended, got.unsurfaced) == ((LAMP,), (LAMP,))
    assert not got.is_agentic
