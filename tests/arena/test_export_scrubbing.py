"""Credentials: each kind is found wherever it stands, ordinary episodes hold none, and no text takes long."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.secrets import find_secrets, scrub
from foundation.canonical import foreign_text

SEED = hashlib.sha256(b"seed").hexdigest()
ALPHANUMERIC = string.ascii_letters + string.digits


def key(length: int, seed: int = 1, letters: str = ALPHANUMERIC) -> str:
    """A random-looking key, the same each time, in pieces no scanner of source code takes for one."""
    rng = random.Random(seed)
    return "a1Zx" + "".join(rng.choice(letters) for _ in range(length - 4))


PARTS = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": "x" * 40})
TOKEN = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in PARTS]
SECRETS = {
    "openai": [
        f"sk-{key(48)}",
        f"sk-proj-{key(60, letters=ALPHANUMERIC + '_-')}",
        f"sk-{hashlib.md5(b'k').hexdigest()}",
    ],
    "anthropic": [f"sk-ant-api03-{key(80, letters=ALPHANUMERIC + '_-')}"],
    "openrouter": [f"sk-or-v1-{hashlib.sha256(b'k').hexdigest()}"],
    "huggingface": [f"hf_{key(34)}"],
    "github": [f"ghp_{key(36)}", f"gho_{key(36)}", f"github_pat_{key(22)}_{key(59)}"],
    "gitlab": [f"glpat-{key(20)}"],
    "aws": ["AKIA" + "Q3EGRITZ7XJ5VNOM"],
    "google": ["AIza" + key(35)],
    "slack": [f"xoxb-{'1234567890'}-{'1234567890123'}-{key(24)}"],
    "jwt": [".".join([*TOKEN, key(43)])],
    "private_key": [
        f"-----BEGIN {name}PRIVATE KEY-----\n{key(64)}\n{key(64, 2)}\n{key(20, 3)}==\n-----END {name}PRIVATE KEY-----"
        for name in ("", "RSA ", "OPENSSH ")
    ],
}
EVERY = [(kind, secret) for kind, secrets in SECRETS.items() for secret in secrets]


@pytest.mark.parametrize(("kind", "secret"), EVERY)
def test_each_kind_is_found_whole_in_plain_text_and_in_json_however_deep(kind: str, secret: str) -> None:
    text = f"use {secret} please"
    for _ in range(4):
        found = find_secrets(text)
        assert [one.kind for one in found] == [kind]
        assert secret.splitlines()[-1] not in scrub(text)
        text = json.dumps({"content": text})
    cleaned = scrub(text)
    for _ in range(4):
        cleaned = json.loads(cleaned)["content"]
    assert cleaned == f"use [REDACTED:{kind}] please"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"Authorization: Bearer {key(40)}", "Authorization: Bearer [REDACTED:bearer]"),
        (f"OPENAI_API_KEY={key(32)}\n", "OPENAI_API_KEY=[REDACTED:named]\n"),
        (f'{{"api_key": "{key(32)}"}}', '{"api_key": "[REDACTED:named]"}'),
        (f'{{\\"secretSeed\\":\\"0x{SEED}\\"}}', '{\\"secretSeed\\":\\"[REDACTED:named]\\"}'),
        (f"https://api.example/v1?token={key(24)}&page=2", "https://api.example/v1?token=[REDACTED:named]&page=2"),
        ("postgresql://arena:s3cret-pass@db/arena", "postgresql://arena:[REDACTED:url_password]@db/arena"),
        (
            f'secretPhrase": "{" ".join(["abandon"] * 11)} about", secretSeed": "0x{SEED}"',
            'secretPhrase": "[REDACTED:phrase]", secretSeed": "[REDACTED:named]"',
        ),
    ],
)  # fmt: skip
def test_values_are_found_by_what_they_are_called(text: str, cleaned: str) -> None:
    assert scrub(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "sk-ii-facial-treatment-essence-230ml-limited-edition-2024",
        "task-7d1f0c3a9b8e4f62a1c5d0e9b7a3f4c2 desk-lamp-with-usb-charging-port-2024",
        f'"request_sha256":"{hashlib.sha256(b"r").hexdigest()}","ledger_sha256":"{hashlib.sha256(b"l").hexdigest()}"',
        f'"call_id":"chatcmpl-tool-{hashlib.md5(b"c").hexdigest()}"',
        "the secret: microfiber-cleaning-cloth-set-of-12-pieces",
        '"prompt_tokens":123456789012345678901234567890',
        "https://shop.example/products/very-long-product-name-with-many-words-123456789?page=2",
        "AKIAMOTO AIzawa eyJ hf_ ghp_ xoxo -----BEGIN PUBLIC KEY-----",
        "5" + "F3sa2TJAWMqDhXG6jhV4N8ko9SxwGy8TpaNS1repo5EYjQX",
        "",
    ],
)
def test_what_only_looks_like_a_credential_stays(text: str) -> None:
    assert find_secrets(text) == ()
    assert scrub(text) == text


@given(st.lists(st.one_of(st.sampled_from([secret for _, secret in EVERY]), st.text(max_size=30)), max_size=6))
def test_scrubbing_is_done_after_one_pass_and_leaves_json_json(parts: list[str]) -> None:
    text = foreign_text(" | ".join(part.encode("utf-8", "ignore").decode() for part in parts))
    cleaned = scrub(text)
    assert scrub(cleaned) == cleaned
    assert not find_secrets(cleaned)
    assert isinstance(json.loads(cleaned), str)
