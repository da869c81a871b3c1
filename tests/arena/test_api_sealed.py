"""A crawler that knows what is sealed looks for it in every answer of every route, before and after the embargo."""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import httpx2
import pytest

from arena.bank.batch import AcceptedProduct, Explained
from arena.chain.keys import generate_signer
from arena.records.model import EvaluationRecord
from arena.sn15.picture import agent_uuid, race_uuid, run_uuid, version_uuid
from problems.explanation import Constraint
from problems.model import POOLS
from tests.arena.sealed_stand import AGENTS, OPENS_MS, RACES, Secrets, fill
from tests.arena.sealed_stand import SECRETS as OF_THE_RECORDS
from tests.arena.tail_stand import Author, serving

_IN_PATH = re.compile(r"{(\w+)}")
PAGES = ("/", "/races", "/races/{race_id}", "/races/{race_id}/problems/{problem}", "/traces/{validator}/{seq}")
PAGES += ("/agents", "/agents/{agent_version_id}", "/firehose", "/validators", "/verify", "/api")
PAGES += ("/proofs/{validator}/{seq}", "/no/such/page")
FILTERS = {"/races": ("stage", "promotion"), "/races/{race_id}": ("show",), "/agents": ("name", "state")}
FILTERS |= {"/firehose": ("race", "agent", "wrote"), "/traces/{validator}/{seq}": ("with",)}
PAGES_BY_POOL = PAGES[2:5]
ALL_POOLS = [("pool", pool) for pool in POOLS]
STREAMS = ("/v1/tail", "/v1/records")
OF_THE_LOG = (
    *STREAMS,
    "/v1/head",
    "/v1/checkpoints",
    "/v1/validators",
    "/proofs/{validator}/{seq}",
)  # hashes cover what is sealed, by design

# what a node knows of problems besides its records, out of the batches that it keeps
ANSWERS = Secrets(
    never=(b"ANSWER-OF-race-running", b"ASKED-BY-race-running"),
    after=(b"ANSWER-OF-race-sealed", b"ASKED-BY-race-sealed"),
    named=(b"ANSWER-OF-eval-race-sealed", b"ASKED-BY-eval-race-sealed"),
    always=(b"ANSWER-OF-race-open", b"ASKED-BY-race-open"),
)
SECRETS = Secrets(*(some + others for some, others in zip(OF_THE_RECORDS, ANSWERS, strict=True)))


def answer_of(record: EvaluationRecord, _: str) -> Explained:
    """What the problem of a record asked and accepts, marked with its race and pool."""
    race_id, is_train = record.context.race_id, record.context.problem_id.endswith("1")
    mark = race_id if is_train else f"eval-{race_id}"
    asked = Constraint(slot=1, axis="title", asked=f"ASKED-BY-{mark}", found="other", is_met=False)
    accepted = AcceptedProduct(slot=1, product_id="7", title=f"ANSWER-OF-{mark}", price="1 PHP", is_answer=True)
    return Explained(constraints=(asked,), accepted=(accepted,))


class Crawler:
    """Asks everything that the document, a cursor or a link names, in every way, and keeps every answer."""

    def __init__(self, http: httpx2.Client, validator: str, size: int, document: str = "/openapi.json") -> None:
        self.http, self.size, self.document = http, size, document
        stranger = generate_signer()
        self.known = {
            "race_id": [*RACES, *map(race_uuid, RACES), "race-none", "..%2f"],
            "race": [*RACES, "race-none"],
            "agent_version_id": [*AGENTS, *map(version_uuid, AGENTS), "nobody"],
            "agent_id": [agent_uuid("5miner", "winner"), agent_uuid("5miner", "loser")],
            "eval_run_id": [run_uuid(validator, race, agent) for race in ("", *RACES) for agent in AGENTS],
            "provider": ["validator", "openrouter"],
            "agent": [*AGENTS],
            "validator": [validator, "nobody"],
            "seq": [*map(str, range(1, size + 2)), "0", "x"],
            "suite": ["s1", "none"],
            "suite_id": ["0", "1", "x"],
            "miner": ["5miner"],
            "problem": ["p0001", "p0002", "p-of-race-running"],
            "after": ["0", str(size - 1), str(size + 9)],
            "after_size": ["0"],
            "limit": ["1", "0"],
            "stage": ["running", "settled"],
            "promotion": ["true"],
            "show": ["split", "all", "none", "void"],
            "name": ["WINNER", "loser", "a1a1"],
            "state": ["qualified"],
            "wrote": ["model", "code"],
            "with": [f"{validator}/5"],
        }
        names = {"x-bittensor-hotkey": stranger.hotkey, "x-hotkey": stranger.hotkey, "authorization": "Bearer x"}
        self.stranger = {**names, "x-signature": "0x" + stranger.sign(b"x").hex()}  # another miner
        self.refused: set[str] = set()
        self.answers: list[tuple[str, httpx2.Response]] = []
        self.asked: set[str] = set()

    def crawl(self) -> None:
        """Until nothing new is named."""
        for version, kind in itertools.product(map(version_uuid, AGENTS), ("AGENT_CODE", "EVAL_PROBLEM_LOGS", "x")):
            target = f"/v1/public/artifacts/download-url {kind} {version}"
            body = {"artifact_type": kind, "agent_version_id": version}
            self.answers.append((target, self.http.post(target.partition(" ")[0], json=body)))
        document = self.http.get(self.document)
        self.answers.append((self.document, document))
        pages = PAGES if self.document == "/openapi.json" else ()  # the door has none
        routes = [*document.json()["paths"].items(), *map(page_route, pages)]
        waiting = list(dict.fromkeys(itertools.chain.from_iterable(map(self.targets, routes))))
        while waiting:
            target = waiting.pop()
            if target not in self.asked:
                self.asked.add(target)
                waiting += self.ask(target)

    def targets(self, route: tuple[str, dict]) -> Iterator[str]:
        """Addresses of one route: every known value of its path, and of each parameter alone and with all pools."""
        path, operations = route
        if "get" not in operations:
            return
        parameters = operations["get"].get("parameters", [])
        inside = [one["name"] for one in parameters if one["in"] == "path"]
        queries = [one["name"] for one in parameters if one["in"] == "query" and one["name"] != "follow"]
        for values in itertools.product(*(self.known[name] for name in inside)):
            place = path.format(**dict(zip(inside, values, strict=True)))
            needed = [[("race", race)] for race in self.known["race"]] if path == "/v1/records" else [[]]
            pools = [[], ALL_POOLS] if "pool" in queries else [[]]
            for asked, pool in itertools.product(needed, pools):
                yield f"{place}?{urlencode([*asked, *pool])}"
                for name in (name for name in queries if name not in ("pool", "race")):
                    for value in self.known.get(name, ["x", quote("¿")]):
                        yield f"{place}?{urlencode([*asked, *pool, (name, value)])}"

    def ask(self, target: str) -> list[str]:
        """One address in all ways; returns what its answer names."""
        answer = self.get(target)
        if target.startswith(STREAMS):
            return []
        is_first_refusal = (route := target.partition("?")[0][:20]) not in self.refused
        if answer.status_code != 200 and not is_first_refusal:
            return []  # the same question in other forms was refused before
        self.refused |= {route} if answer.status_code != 200 else set()
        etag = answer.headers.get("etag", '"none"')
        ways = ({"range": "bytes=0-99"}, {"if-none-match": etag})
        for headers in (self.stranger, *ways):
            self.get(target, headers=headers, told=f"{target} {headers}")
        self.answers.append((f"POST {target}", self.http.post(target)))
        if answer.status_code == 200 and "html" in answer.headers["content-type"]:
            return [html.unescape(link) for link in re.findall(r'(?:href|src)="(/[^"#]*)', answer.text)]
        if answer.status_code != 200 or "json" not in answer.headers["content-type"]:
            return []
        return list(self.links(target, answer.json()))

    def get(self, target: str, told: str = "", **options) -> httpx2.Response:
        answer = self.http.get(target, **options)
        self.answers.append((told or target, answer))
        assert answer.status_code < 500, (target, answer.text)
        return answer

    def links(self, target: str, value: object) -> Iterator[str]:
        if isinstance(value, dict):
            if value.get("next"):
                yield f"{target.partition('&cursor')[0]}&cursor={value['next']}"
            if value.get("href"):
                yield str(value["href"])
            for part in value.values():
                yield from self.links(target, part)
        elif isinstance(value, list):
            for part in value:
                yield from self.links(target, part)

    def holders(self, secret: bytes) -> set[str]:
        """The addresses whose answers hold a secret: plain, in hex or in base64, in body or headers."""
        forms = (secret, secret.hex().encode(), base64.b64encode(secret)[:-4])
        found = set()
        for target, answer in self.answers:
            everything = answer.content + repr(answer.headers.raw).encode()
            if any(form in everything for form in forms):
                found.add(target)
        return found


def page_route(path: str) -> tuple[str, dict]:
    """A page as the document would name it."""
    inside = [{"name": name, "in": "path"} for name in _IN_PATH.findall(path)]
    query = [{"name": "pool", "in": "query"}] if path in PAGES_BY_POOL else []
    asked = [{"name": name, "in": "query"} for name in FILTERS.get(path, ())]
    return path, {"get": {"parameters": inside + query + asked}}


@pytest.fixture(scope="module")
def author(postgres) -> tuple[Author, int]:
    signer = generate_signer()
    made = Author(postgres.dsn_for(signer.hotkey), signer)
    return made, fill(made)


@pytest.fixture(scope="module", params=["before", "after"])
def crawled(request, author) -> Iterator[tuple[str, Crawler]]:
    writer, size = author
    now_ms = OPENS_MS - 1 if request.param == "before" else OPENS_MS
    with (
        serving(
            writer.dsn, now_ms=lambda: now_ms, explain=answer_of, requests_per_s=1e6, is_sn15_served=True
        ) as server,
        httpx2.Client(base_url=server.address, timeout=30) as http,
    ):
        crawler = Crawler(http, writer.signer.hotkey, size)
        crawler.crawl()
        yield request.param, crawler


def test_the_crawler_meets_what_is_public(crawled):
    moment, crawler = crawled
    assert len(crawler.asked) > 300
    open_now = SECRETS.always + (SECRETS.after + SECRETS.named if moment == "after" else ())
    assert [each for each in open_now if not crawler.holders(each)] == []


def test_nothing_sealed_is_in_any_answer(crawled):
    moment, crawler = crawled
    sealed = SECRETS.never + (() if moment == "after" else SECRETS.after + SECRETS.named)
    found = {each: sorted(crawler.holders(each)) for each in sealed}
    asked_for = {each: [where for where in found[each] if each.decode() not in where] for each in found}
    assert {each: places for each, places in asked_for.items() if places} == {}


def test_a_pool_that_was_not_named_is_in_no_answer(crawled):
    _, crawler = crawled
    for secret in SECRETS.named:
        assert [where for where in crawler.holders(secret) if "pool=eval" not in where] == []


def test_the_score_of_a_race_follows_from_no_count(crawled):
    """Every episode of every race was a success; days tell it of released races alone."""
    _, crawler = crawled
    days = [answer.json() for target, answer in crawler.answers if target == "/v1/stats/days?"]
    totals = {(row["episodes"], row["scored"], row["solved"]) for each in days for row in each.get("items", ())}
    assert totals == {(12, 8, 8)}


def test_every_refusal_has_the_one_shape(crawled):
    _, crawler = crawled
    shape = {"code", "message", "whose_fault", "what_it_costs", "what_to_do"}
    of_sn15 = {"detail", "error_code"}
    refused = [(target, answer) for target, answer in crawler.answers if answer.status_code >= 400]
    assert len(refused) > 50
    for target, answer in refused:
        if "html" in answer.headers["content-type"]:
            assert re.search(r'class="note">[AVUP]\d{4} ', answer.text), target
        else:
            found = set(json.loads(answer.content))
            assert found - {"head"} == shape or (target.startswith("/v1/public/") and found == of_sn15), target
        assert "access-control-allow-origin" not in answer.headers


def test_what_is_sealed_changes_no_answer(postgres, author):
    """Two logs that differ in every sealed word, and in its length, are answered alike: body, length and ETag."""
    writer, _ = author
    other = Author(postgres.dsn_for((signer := generate_signer()).hotkey), signer)
    size = fill(other, more=" and more of it" * 9)
    seen = []
    for one in (writer, other):
        with (
            serving(one.dsn, now_ms=lambda: OPENS_MS - 1, requests_per_s=1e6, is_sn15_served=True) as server,
            httpx2.Client(base_url=server.address, timeout=30) as http,
        ):
            crawler = Crawler(http, one.signer.hotkey, size)
            pages = [page_route(page) for page in PAGES if page not in ("/traces/{validator}/{seq}", "/validators")]
            paths = [*http.get("/openapi.json").json()["paths"].items(), *pages]
            targets = [target for path in paths if path[0] not in OF_THE_LOG for target in crawler.targets(path)]
            plain = [target for target in targets if "cursor" not in target and "limit" not in target]
            seen.append({blind(target, one): look(http, target, one) for target in plain})
    first, second = seen
    assert len(first) > 100
    assert {target: (first[target], second[target]) for target in first if first[target] != second[target]} == {}


def look(http: httpx2.Client, target: str, author: Author) -> tuple[int, str, str, str]:
    """Everything of an answer, without the validator's name and what tells traces apart before they open."""
    answer = http.get(target)
    if target.startswith("/v1/trajectories/") and answer.status_code == 200:
        return 200, "", "", ""  # public by now, with the hashes of its place in the log
    told = blind(answer.text, author)
    etag = answer.headers.get("etag", "") if told == answer.text else ""
    return answer.status_code, told, etag, answer.headers.get("content-length", "")


def blind(text: str, author: Author) -> str:
    """A body's hash is there so that a trace can be checked when it opens; what it covers no one can guess. A run's id
    is of its validator."""
    for number, (race, agent) in enumerate(itertools.product(("", *RACES), AGENTS)):
        text = text.replace(run_uuid(author.signer.hotkey, race, agent), f"RUN-{number}")
    hotkey = author.signer.hotkey
    text = re.sub(r"http://127\.0\.0\.1:\d+", "SERVER", text.replace(f"{hotkey[:6]}…{hotkey[-4:]}", "VALIDATOR"))
    return re.sub(r'("body_sha256":)"[0-9a-f]{64}"', r"\1", text.replace(hotkey, "VALIDATOR"))
