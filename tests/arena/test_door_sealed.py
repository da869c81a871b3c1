"""A crawler that knows what is sealed asks a validator's door and its exchange for it: as nobody, as another miner and
as a hotkey without a permit, in every way the routes allow."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from arena.chain.keys import generate_signer, keypair_signer
from arena.exchange.port import QUESTIONS
from arena.submissions.model import make_submission
from tests.arena.door_stand import WIDE_RULES, Miner, Stand, serving
from tests.arena.exchange_stand import HttpNet, Node
from tests.arena.operator_stand import make_folder, publish_folder
from tests.arena.sealed_stand import AGENTS, RACES, RUNNING, SECRETS, fill, source_of
from tests.arena.tail_stand import Author

SEALED = (*SECRETS.never, *SECRETS.after, *SECRETS.named)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def holders(answers: list[tuple[str, httpx2.Response]]) -> dict[str, list[str]]:
    """The requests whose answers hold a secret that they did not bring: plain, in hex or in base64."""
    found = {}
    for secret in SEALED:
        forms = (secret, secret.hex().encode(), base64.b64encode(secret)[:-4])
        told = [
            target
            for target, answer in answers
            if any(form in answer.content + repr(answer.headers.raw).encode() for form in forms)
            and secret.decode() not in target
        ]
        if told:
            found[secret.decode()] = told
    return found


@pytest.fixture(scope="module")
def sealed(postgres, tmp_path_factory) -> Iterator[tuple[Stand, Author]]:
    uri = f"//Door{generate_signer().hotkey[-8:]}"
    author = Author(postgres.dsn_for(keypair_signer(uri).hotkey), keypair_signer(uri))
    fill(author)
    stand = Stand(tmp_path_factory.mktemp("door"), author.dsn, uri)
    with serving(stand, WIDE_RULES):
        yield stand, author


async def test_the_door_tells_a_stranger_nothing_sealed(sealed: tuple[Stand, Author]) -> None:
    stand, _ = sealed
    miner = await Miner(stand).register()
    answers: list[tuple[str, httpx2.Response]] = []
    async with httpx2.AsyncClient(base_url=stand.address, timeout=30) as http:
        document = await http.get("/openapi.json")
        answers.append(("/openapi.json", document))
        paths = [path for path in document.json()["paths"] if path != "/openapi.json"]
        targets = {path.format(version=version) for path in paths for version in (*AGENTS, "ab" * 32, "x")}
        for target, method in itertools.product(sorted(targets), METHODS):
            answers.append((f"{method} {target}", await http.request(method, target)))
            answers.append((f"signed {method} {target}", await http.send(miner.signed(method, target))))
            borrowed = miner.signed(method, target)
            borrowed.headers["x-bittensor-hotkey"] = "5miner"
            answers.append((f"borrowed {method} {target}", await http.send(borrowed)))
        for name, more in itertools.product(("WINNER", "LOSER"), ("", "\n# nearly")):  # its code, and a near copy
            copier = await Miner(stand).register()
            made = await copier.commit(source_of(name) + more, name=name.lower())
            answer = await http.send(copier.request(made))
            told = await http.send(copier.signed("GET", f"/v1/submissions/{made.agent_version_id}"))
            assert (answer.status_code, told.status_code, told.json()["state"]) == (202, 200, "waiting")
            answers += [("submit a copy", answer), ("status of a copy", told)]
    assert len(answers) > 80
    assert {answer.status_code for _, answer in answers} >= {200, 202, 401, 404, 405}
    assert all(answer.status_code < 500 for _, answer in answers)
    assert holders(answers) == {}


async def test_the_exchange_tells_nobody_without_a_permit_and_no_peer_too_early(
    sealed: tuple[Stand, Author], tmp_path: Path
) -> None:
    stand, author = sealed
    _, store = await stand.open_door()
    permits: set[str] = set()
    node, peer, stranger = Node(tmp_path, permits, store, author.signer), Node(tmp_path, permits), Node(tmp_path, set())
    node.races = set(RACES)
    made = make_submission(generate_signer(), "loser", source_of("LOSER"), time.time_ns() // 1_000_000)
    await node.hold_source(made)
    note = await node.note(RUNNING)
    make_folder(tmp_path / "files")
    released = publish_folder(node.releases, tmp_path / "files").release.files
    net = HttpNet()
    base = (await net.join(node)).endpoint
    asked = {
        "validator": [node.hotkey, peer.hotkey],
        "hotkey": [made.hotkey],
        "sha256": ["ab" * 32, made.commitment_sha256, *(file.sha256 for file in released)],
        "known": [""],
        "start": ["0"],
        "race": [*RACES, ""],
        "to": ["1", "9", "1000"],
        "after": ["0"],
    }
    answers: list[tuple[str, httpx2.Response]] = []
    by_peer: list[tuple[str, httpx2.Response]] = []
    async with httpx2.AsyncClient(base_url=base, timeout=30) as http:
        document = await http.get("/openapi.json")
        answers.append(("/openapi.json", document))
        for kind, question in QUESTIONS.items():
            names = question.__struct_fields__
            for values in itertools.product(*(asked[name] for name in names)):
                target = str(httpx2.URL(f"/v1/exchange/{kind}", params=dict(zip(names, values, strict=True))))
                for told, headers in (
                    ("nobody", {}),
                    ("stranger", stranger.auth.sign("GET", target, node.hotkey)),
                    ("for another", peer.auth.sign("GET", target, stranger.hotkey)),
                ):
                    answers.append((f"{told} {target}", await http.get(target, headers=headers)))
                signed = peer.auth.sign("GET", target, node.hotkey)
                by_peer.append((target, await http.get(target, headers=signed)))
    await net.close()
    await store.close()
    assert note and len(answers) > 100
    assert {answer.status_code for target, answer in answers if "/v1/exchange" in target} == {401, 403}
    assert holders(answers) == {}
    relayed = {target for target, answer in by_peer if b"SOURCE-OF-THE-LOSER" in answer.content}
    read = {target for target, answer in by_peer if "/v1/exchange/file" in target and answer.status_code == 200}
    assert len(read) == len({file.sha256 for file in released})
    assert relayed and all("/v1/exchange/submission" in target for target in relayed)  # permit holders run the agents
    early = [(target, answer) for target, answer in by_peer if "/v1/exchange/submission" not in target]
    assert holders(early) == {}
