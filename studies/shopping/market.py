"""The study's market, its random tool-caller, and the tokenizer that the market's own texts teach.

Everything follows from the plan's seed, the partition's key too: nothing here is secret. By the bank's own partition
the second set is `never_touch`, the 75 are `eval`, `dev` is drawn after them, the rest is `train`, by leak clusters.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from arena.bank.partition_file import read_partition, write_partition
from arena.chain.keys import keypair_signer, verify
from foundation.errors import ArenaError, Failure
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.synthetic import generate
from harness.inference.port import ModelReply
from harness.inference.reply import read_reply
from harness.inference.scripted.model import ScriptedUpstream
from harness.inference.scripted.shopper import CONCISE
from problems.clusters import find_classes
from problems.formats import read_problems, write_problems
from problems.model import BUCKETS, SERVICES, Pool, Problem, Product
from problems.partition import OpenPartition, freeze, touched_pools
from problems.synthesis import synthesize
from studies.shopping.plan import MarketRules, StudyPlan
from training.model import Decode
from training.models.render import Qwen3Codec
from training.models.tiny_model import train_tokenizer
from training.rollouts.rollout import jobs_of
from training.run_context import RunContext
from training.stages.pipeline import trace_of

SIGNER = "//Study"  # a development key whose secret everybody can derive
INDEX, PARTITION, PROBLEMS, TRAIN = "index", "partition.json", "problems", "train.jsonl"
EXPERT, RANDOM = "scripted-expert", "random-tool-caller"
_POOLS: Mapping[str, Pool] = {"train": "train", "eval": "eval", "second": "never_touch", "dev": "dev"}
_SHOP_LOW, _PRODUCTS_PER_SHOP = 100, 20
_DRAWN_TIMES = 40  # generated products looked at for each one taken, at most
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"
_TITLE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+)*")  # words alone: no codes, figures and marks
_VALUE = re.compile(r"[a-z][a-z ]*")
_WORD = re.compile(r"[a-z0-9]{3,}", re.IGNORECASE)
_SHOWN = re.compile(r'"product_id":"([^"]+)"')
_SPECIAL = re.compile(r"<\|?/?[a-z_]+\|?>")
_FILTER_CHANCE, _PRICE_LOW_MAX_PHP = 0.4, 300


class Market(msgspec.Struct, frozen=True, kw_only=True):
    """Problems by pool; `second` is the suite of `never_touch`."""

    train: tuple[Problem, ...]
    eval: tuple[Problem, ...]
    second: tuple[Problem, ...]
    dev: tuple[Problem, ...]


def make_market(plan: StudyPlan, folder: Path) -> None:
    """Write catalogue, index, problems and partition to `folder`. Made again, it is the same.

    Raises ArenaError P4011 for a catalogue too small for the problems, P4011 when the deal leaves a pool short.
    """
    rules = plan.market
    folder.mkdir(parents=True, exist_ok=True)
    products = stock(rules, plan.seed)
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(products, stream)
    build_index(folder / "documents.jsonl", folder / INDEX)
    parts = (rules.train_counts, rules.eval_counts, rules.second_counts, rules.dev_counts)
    counts = {bucket: sum(part.get(bucket, 0) for part in parts) for bucket in BUCKETS}
    problems = synthesize(products, seed=plan.seed, counts=counts)
    dice, second = random.Random(f"second {plan.seed}"), list[Problem]()
    by_id = sorted(problems, key=lambda problem: problem.problem_id)
    for bucket in BUCKETS:
        second += dice.sample([one for one in by_id if one.bucket == bucket], rules.second_counts.get(bucket, 0))
    key = hashlib.sha256(f"study partition {plan.seed}".encode()).digest()
    manifest = freeze(
        problems,
        second,
        seed=plan.seed,
        key=key,
        classes=find_classes(products),
        eval_counts=rules.eval_counts,
        dev_counts=rules.dev_counts,
    )
    write_partition(folder / PARTITION, manifest, key, keypair_signer(SIGNER))
    partition, pools = OpenPartition(manifest, key), dict[Pool, list[Problem]]()
    for problem in problems:
        pools.setdefault((*touched_pools(problem, partition), "train")[0], []).append(problem)
    (folder / PROBLEMS).mkdir(exist_ok=True)
    for name, pool in _POOLS.items():
        _write(folder, name, pools.get(pool, []))
    train = sorted(pools.get("train", []), key=lambda problem: problem.problem_id)
    for name, count in rules.drawn.items():
        _write(folder, name, random.Random(f"{name} {plan.seed}").sample(train, min(count, len(train))))


def read_market(folder: Path) -> Market:
    """The problems of a market that was made."""
    found: dict[str, tuple[Problem, ...]] = {}
    for name in _POOLS:
        lines = (folder / PROBLEMS / f"{name}.jsonl").read_bytes().splitlines()
        found[name] = read_problems(lines) if lines else ()
    return Market(**found)


def open_partition(folder: Path) -> OpenPartition:
    """The market's partition with its key."""
    return read_partition(folder / PARTITION, verify)


def stock(rules: MarketRules, seed: int) -> list[Product]:
    """The products: synthetic ones, shortened. Ids are a consonant and a vowel, in either order, and two digits; titles
    are words alone, in lower case; a few options and attributes whose values are words; whole pesos; no descriptions.

    Raises ArenaError P4011 when the generator has too few short titles, or there are more products than ids.
    """
    pairs = [(one, other) for one in _CONSONANTS for other in _VOWELS]
    pairs += [(other, one) for one, other in pairs]
    ids = [f"{one}{other}{number:02}" for one, other in pairs for number in range(100)]
    random.Random(f"ids {seed}").shuffle(ids)
    dice = random.Random(f"shops {seed}")
    taken: list[Product] = []
    for product in generate(rules.documents * _DRAWN_TIMES, seed):
        if len(product.title) > rules.title_chars_max or not _TITLE.fullmatch(product.title):
            continue
        shop_id = str(_SHOP_LOW + dice.randrange(max(1, rules.documents // _PRODUCTS_PER_SHOP)))
        taken.append(_shortened(product, ids[len(taken)], shop_id, rules.options_max))
        if len(taken) == min(rules.documents, len(ids) - 1):
            break
    if len(taken) < rules.documents:
        raise ArenaError("P4011", f"{len(taken)} of {rules.documents} products with short titles and ids of their own")
    return taken


def _shortened(product: Product, product_id: str, shop_id: str, options_max: int) -> Product:
    options = [option for option in product.sku_options.values() if all(map(_VALUE.fullmatch, option.values()))]
    attributes = [(key, one[:1]) for key, one in product.attributes.items() if one and _VALUE.fullmatch(one[0])]
    return msgspec.structs.replace(
        product,
        product_id=product_id,
        shop_id=shop_id,
        title=product.title.lower(),
        price=float(round(product.price)),
        sku_options={str(number): option for number, option in enumerate(options[:options_max], 1)},
        attributes=dict(attributes[:options_max]),
        short_description="",
        description="",
        specification="",
    )


def _write(folder: Path, name: str, problems: Iterable[Problem]) -> None:
    lines = "".join(f"{line}\n" for line in write_problems(problems))
    (folder / PROBLEMS / f"{name}.jsonl").write_text(lines, "utf-8")


class RandomCaller:
    """The random tool-caller as an `Upstream`: it knows the tools' form and nothing else.

    It searches for words of the question, looks at and recommends ids that a search has shown, and says which products
    it has seen, all drawn at random. Equal seeds and requests give equal replies.
    """

    name = RANDOM

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def complete(self, request: str) -> ModelReply:
        """The reply to `request`, JSON text."""
        fields: dict[str, Any] = msgspec.json.decode(request)
        messages = fields["messages"]
        dice = random.Random(f"{self._seed} {len(messages)}")
        name, arguments = self._next(messages, dice)
        call = {"name": name, "arguments": msgspec.json.encode(arguments).decode()}
        message = {
            "role": "assistant",
            "content": _quoted(messages, dice),
            "tool_calls": [{"id": f"call_{len(messages)}", "type": "function", "function": call}],
        }
        reply = {
            "model": str(fields.get("model", RANDOM)),
            "choices": [{"finish_reason": "tool_calls", "message": message}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        return read_reply(msgspec.json.encode(reply))

    def probe(self, request: str) -> Failure | None:
        """It is always there."""
        return None

    def _next(self, messages: list[dict[str, Any]], dice: random.Random) -> tuple[str, dict[str, object]]:
        made = [call["function"]["name"] for row in messages for call in row.get("tool_calls") or ()]
        if "recommend_product" in made:
            return "terminate", {"status": "success"}
        results = [str(row["content"]) for row in messages if row["role"] == "tool"]
        shown = sorted({one for text in results for one in _SHOWN.findall(text)})
        name = "find_product"
        if shown:
            name = dice.choice(("find_product", "view_product_information", "recommend_product"))
        if name == "find_product":
            return name, _search(messages, dice)
        if name == "view_product_information":
            return name, {"product_ids": dice.choice(shown)}
        return name, {"product_ids": ",".join(dice.sample(shown, min(len(shown), dice.randint(1, 3))))}


def _search(messages: list[dict[str, Any]], dice: random.Random) -> dict[str, object]:
    words = _WORD.findall(_question(messages))
    start = dice.randrange(max(1, len(words) - 3))
    arguments: dict[str, object] = {"page": 1, "q": " ".join(words[start : start + dice.randint(2, 4)])}
    if dice.random() < _FILTER_CHANCE:
        arguments["price"] = f"{dice.randint(1, _PRICE_LOW_MAX_PHP)}-"
    if dice.random() < _FILTER_CHANCE:
        arguments["service"] = dice.choice(SERVICES)
    return dict(sorted(arguments.items()))


def _question(messages: list[dict[str, Any]]) -> str:
    return next(str(row["content"]) for row in messages if row["role"] == "user")


def _quoted(messages: list[dict[str, Any]], dice: random.Random) -> str:
    """The question at first, then some hits of the last search: what was read, and nothing that follows from it."""
    if messages[-1]["role"] == "user":
        return f"I read: {_question(messages)}"
    hits = next((found for row in reversed(messages) if (found := _hits(str(row.get("content"))))), [])
    if not hits:
        return ""
    drawn = sorted(dice.sample(range(len(hits)), min(len(hits), dice.randint(1, 4))))
    said = ('{product_id} "{title}" at {price} PHP from shop {shop_id}'.format_map(hits[place]) for place in drawn)
    return f"I see {'; '.join(said)}."


def _hits(text: str) -> list[dict[str, Any]]:
    """The rows of a search result; none of any other text."""
    try:
        rows = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return [row for row in rows if isinstance(row, dict) and "title" in row] if isinstance(rows, list) else []


def make_tokenizer(plan: StudyPlan, source: Path, target: Path, bench: RunContext) -> None:
    """Write `target`, a tokenizer folder: Qwen3's frame around base tokens learnt from episodes of the scripted expert,
    of the concise model and of the random tool-caller on train problems."""
    train = sorted(bench.problems, key=lambda problem: problem.problem_id)
    drawn = random.Random(f"vocabulary {plan.seed}").sample(train, min(plan.vocabulary.problems, len(train)))
    decode = Decode(temperature=0.0, turns_max=plan.turns_max)
    codec = Qwen3Codec(source)
    texts: list[str] = []
    for job in jobs_of(drawn, 1, plan.seed):
        scripted = ScriptedUpstream()
        for upstream, model in ((scripted, EXPERT), (scripted, CONCISE), (RandomCaller(job.seed), RANDOM)):
            trace = trace_of(bench.ask(job, upstream, model, decode))
            row = codec.row(trace.trace_id, trace.messages, trace.tools, 1 << 30)
            texts += _SPECIAL.split(codec.decode(row.token_ids))
    train_tokenizer(source, target, texts, keep=plan.vocabulary.tokens)
