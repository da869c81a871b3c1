"""Crawlers that know what is sealed look for it in every answer of every route, before and after the embargo: of the
public reads and pages, of the door and of the SN15 routes as a registered miner. The exchange: `test_exchange_http`."""

from __future__ import annotations

import asyncio
import base64
import html
import itertools
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import httpx2
import pytest

from arena.bank.batch import AcceptedProduct, Explanation
from arena.chain.keys import keypair_signer
from arena.records.model import EvaluationRecord
from arena.sn15.picture import uuid_of, version_uuid
from problems.model import POOLS
from problems.score import Constraint
from tests.arena.door_stand import WIDE_RULES, LegacyAuth, Miner, SigningAuth, Stand, open_to_commitments
from tests.arena.door_stand import serving as serving_door
from tests.arena.sealed_stand import AGENTS, OPENS_MS, RACES, Secrets, fill
from tests.arena.sealed_stand import SECRETS as OF_THE_RECORDS
from tests.arena.tail_stand import Author, serving
from tests.keys import generate_signer

_IN_PATH = re.compile(r"{(\w+)}")
PAGES = ("/", "/races", "/races/{race_id}", "/races/{race_id}/problems/{problem}", "/traces/{validator}/{seq}")
PAGES += ("/agents", "/agents/{agent_version_id}", "/firehose", "/validators", "/verify", "/api")
PAGES += ("/proofs/{validator}/{seq}", "/no/such/page")
FILTERS = {"/races": ("stage", "promotion"), "/agents": ("name", "state")}
FILTERS |= {"/firehose": ("race", "agent", "wrote"), "/traces/{validator}/{seq}": ("with",)}
ALL_POOLS = [("pool", pool) for pool in POOLS]
STREAMS = ("/v1/tail", "/v1/records")
OF_THE_LOG = ("/v1/head", "/v1/checkpoints", "/v1/validators", "/proofs/{validator}/{seq}")  # hashes, by design

# what a node knows of problems besides its records, out of the batches that it keeps
ANSWERS = Secrets(
    never=(b"ANSWER-OF-race-running", b"ASKED-BY-race-running"),
    after=(b"ANSWER-OF-race-sealed", b"ASKED-BY-race-sealed"),
    named=(b"ANSWER-OF-eval-race-sealed", b"ASKED-BY-eval-race-sealed"),
    always=(b"ANSWER-OF-race-open", b"ASKED-BY-race-open"),
)
SECRETS = Secrets(*(some + others for some, others in zip(OF_THE_RECORDS, ANSWERS, strict=True)))


def answer_of(record: EvaluationRecord, _: str) -> Explanation:
    """What the problem of a record asked and accepts, marked with its race and pool."""
    race_id, is_train = record.context.race_id, record.context.problem_id.endswith("1")
    mark = race_id if is_train else f"eval-{race_id}"
    asked = Constraint(slot=1, axis="title", asked=f"ASKED-BY-{mark}", found="other", is_met=False)
    accepted = AcceptedProduct(slot=1, product_id="7", title=f"ANSWER-OF-{mark}", price="1 PHP", is_answer=True)
    return Explanation(constraints=(asked,), accepted=(accepted,))


def holders(answers: list[tuple[str, httpx2.Response]], secret: bytes) -> set[str]:
    """The addresses whose answers hold a secret: plain, in hex or in base64, in body or headers."""
    forms = (secret, secret.hex().encode(), base64.b64encode(secret)[:-4])
    shown = ((target, answer.content + repr(answer.headers.raw).encode()) for target, answer in answers)
    return {target for target, everything in shown if any(form in everything for form in forms)}


class Crawler:
    """Asks everything that the document, a cursor or a link names, in every way, and keeps every answer."""

    def __init__(self, http: httpx2.Client, validator: str, size: int, document: str = "/openapi.json") -> None:
        self.http, self.document = http, document
        stranger = generate_signer()
        self.known = {
            "race_id": [*RACES, *(uuid_of("race", each) for each in RACES), "race-none", "..%2f"],
            "race": [*RACES, "race-none"],
            "agent_version_id": [*AGENTS, *map(version_uuid, AGENTS), "nobody"],
            "version": [*AGENTS, "ab" * 32, "x"],
            "agent_id": [uuid_of("agent", "5miner", "winner"), uuid_of("agent", "5miner", "loser")],
            "eval_run_id": [uuid_of("run", validator, race, agent) for race in ("", *RACES) for agent in AGENTS],
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

    def crawl(self, pages: tuple[str, ...] = ()) -> None:
        """Until nothing new is named."""
        for version, kind in itertools.product(map(version_uuid, AGENTS), ("AGENT_CODE", "EVAL_PROBLEM_LOGS", "x")):
            target = f"/v1/public/artifacts/download-url {kind} {version}"
            body = {"artifact_type": kind, "agent_version_id": version}
            answer = self.http.post(target.partition(" ")[0], json=body)
            self.answers.append((target, answer))
            if link := answer.json().get("download_url"):
                self.get(link)
        document = self.get(self.document)
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
        parameters = operations.get("get", {}).get("parameters", [])
        inside = [one["name"] for one in parameters if one["in"] == "path"]
        queries = [one["name"] for one in parameters if one["in"] == "query" and one["name"] != "follow"]
        for values in itertools.product(*(self.known[name] for name in inside)) if "get" in operations else ():
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
        for headers in (self.stranger, {"range": "bytes=0-99"}, {"if-none-match": etag}):
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
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from self.links(target, part)


def page_route(path: str) -> tuple[str, dict]:
    """A page as the document would name it."""
    inside = [{"name": name, "in": "path"} for name in _IN_PATH.findall(path)]
    query = [{"name": "pool", "in": "query"}] if path in PAGES[2:5] else []
    asked = [{"name": name, "in": "query"} for name in FILTERS.get(path, ())]
    return path, {"get": {"parameters": inside + query + asked}}


@pytest.fixture(scope="module")
def sealed(postgres) -> tuple[str, Author, int]:
    """A log of a validator, its key's name, and its size."""
    uri = f"//Sealed{generate_signer().hotkey[-8:]}"
    author = Author(postgres.dsn_for(keypair_signer(uri).hotkey), keypair_signer(uri))
    return uri, author, fill(author)


@pytest.fixture(scope="module", params=itertools.product(("reads", "sn15", "door"), ("before", "after")), ids="-".join)
def crawled(request, sealed, tmp_path_factory) -> Iterator[tuple[str, str, Crawler]]:
    (server, moment), (uri, author, size) = request.param, sealed
    now_ms = OPENS_MS - 1 if moment == "before" else OPENS_MS
    if server == "reads":
        with (
            serving(
                author.dsn, now_ms=lambda: now_ms, explain=answer_of, requests_per_s=1e6, is_sn15_served=True
            ) as tail,
            httpx2.Client(base_url=tail.address, timeout=30) as http,
        ):
            crawler = Crawler(http, author.signer.hotkey, size)
            crawler.crawl(PAGES)
            yield server, moment, crawler
        return
    stand = open_to_commitments(Stand(tmp_path_factory.mktemp("door"), author.dsn, uri))
    stand.now_ms, stand.refresh_s = lambda: now_ms, 60.0
    with serving_door(stand, WIDE_RULES):
        miner = asyncio.run(Miner(stand).register())
        auth = LegacyAuth(miner.signer) if server == "sn15" else SigningAuth(miner)
        document = "/v1/public/openapi.json" if server == "sn15" else "/openapi.json"
        with httpx2.Client(base_url=stand.address, timeout=30, auth=auth) as http:
            crawler = Crawler(http, stand.validator, size, document)
            crawler.crawl()
            yield server, moment, crawler


def test_what_is_public_is_met_and_nothing_sealed_is_in_any_answer(crawled):
    server, moment, crawler = crawled
    assert len(crawler.asked) > {"reads": 300, "sn15": 80, "door": 5}[server]
    if server == "reads":
        open_now = SECRETS.always + (SECRETS.after + SECRETS.named if moment == "after" else ())
        assert [each for each in open_now if not holders(crawler.answers, each)] == []
        for secret in SECRETS.named:
            assert [where for where in holders(crawler.answers, secret) if "pool=eval" not in where] == []
    if server == "sn15":
        assert bool(holders(crawler.answers, b"SOURCE-OF-THE-WINNER")) == (moment == "after")
    kept = SECRETS.never + (() if moment == "after" else SECRETS.after)
    kept += () if (server, moment) == ("reads", "after") else SECRETS.named
    found = {each: holders(crawler.answers, each) for each in kept}
    assert {each: told for each in found if (told := {at for at in found[each] if each.decode() not in at})} == {}


def test_the_score_of_a_race_follows_from_no_count(crawled):
    """Every episode of every race was a success; days tell it of released races alone."""
    server, _, crawler = crawled
    days = [answer.json() for target, answer in crawler.answers if target == "/v1/stats/days?"]
    totals = {(row["episodes"], row["scored"], row["solved"]) for each in days for row in each.get("items", ())}
    assert totals == ({(12, 8, 8)} if server == "reads" else set())


def test_every_refusal_has_the_one_shape_of_its_api(crawled):
    server, _, crawler = crawled
    shape, of_sn15 = {"code", "message", "whose_fault", "what_it_costs", "what_to_do"}, {"detail", "error_code"}
    refused = [(target, answer) for target, answer in crawler.answers if answer.status_code >= 400 and answer.content]
    assert len(refused) > 5
    for target, answer in refused:
        if "html" in answer.headers["content-type"]:
            assert re.search(r'class="note">[AVUP]\d{4} ', answer.text), target
        elif answer.status_code != 416 or server == "reads":  # that API knows no ranges
            found = set(json.loads(answer.content))
            is_sn15 = "/v1/public/" in target or server == "sn15"
            assert found - {"head"} == shape or (is_sn15 and found <= of_sn15), target
        assert "access-control-allow-origin" not in answer.headers


def test_what_is_sealed_changes_no_answer(postgres, sealed):
    """Two logs that differ in every sealed word, and in its length, are answered alike: body, length and ETag."""
    _, writer, _ = sealed
    other = Author(postgres.dsn_for((signer := generate_signer()).hotkey), signer)
    size = fill(other, more=" and more of it" * 9)
    seen = []
    for one in (writer, other):
        with (
            serving(one.dsn, now_ms=lambda: OPENS_MS - 1, requests_per_s=1e6, is_sn15_served=True) as server,
            httpx2.Client(base_url=server.address, timeout=30, limits=httpx2.Limits(keepalive_expiry=1)) as http,
        ):
            crawler = Crawler(http, one.signer.hotkey, size)
            pages = [page_route(page) for page in PAGES if page not in ("/traces/{validator}/{seq}", "/validators")]
            paths = [*http.get("/openapi.json").json()["paths"].items(), *pages]
            targets = [each for path in paths if path[0] not in STREAMS + OF_THE_LOG for each in crawler.targets(path)]
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
    hotkey = author.signer.hotkey
    for number, (race, agent) in enumerate(itertools.product(("", *RACES), AGENTS)):
        text = text.replace(uuid_of("run", hotkey, race, agent), f"RUN-{number}")
    text = re.sub(r"http://127\.0\.0\.1:\d+", "SERVER", text.replace(f"{hotkey[:6]}…{hotkey[-4:]}", "VALIDATOR"))
    return re.sub(r'("body_sha256":)"[0-9a-f]{64}"', r"\1", text.replace(hotkey, "VALIDATOR"))
