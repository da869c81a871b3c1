"""What a record commits to before it may be shown, and what opens it.

A source is committed to on chain and opened by itself; a batch's problems and clusters are committed to in records and
opened by the batch's salt.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NewType

from arena.chain.keys import canonical_hotkey

Hotkey = NewType("Hotkey", str)  # ss58, prefix 42
AgentVersionId = NewType("AgentVersionId", str)  # sha256(hotkey, newline, source sha256), hex
Sha256 = NewType("Sha256", str)  # lower-case hex


def agent_version_id(hotkey: str, source_sha256: str) -> AgentVersionId:
    """sha256 hex of (hotkey, newline, source sha256)."""
    return AgentVersionId(hashlib.sha256(f"{canonical(hotkey)}\n{source_sha256}".encode()).hexdigest())


def commitment_sha256(hotkey: str, source: str) -> Sha256:
    """sha256 hex of (ss58 address with prefix 42) followed by the source's UTF-8 bytes."""
    return Sha256(hashlib.sha256(canonical(hotkey).encode() + source.encode()).hexdigest())


def cluster_commitment(salt: str, problem_id: str, cluster: str) -> str:
    """The commitment (hex) that says of a public problem which cluster it belongs to, once the salt is known."""
    return commitment(salt, "cluster", f"{problem_id}\n{cluster}".encode())


def commitment(salt: str, label: str, content: bytes) -> str:
    """HMAC-SHA256 (hex) under the hex salt: public before release, checkable after it. The label keeps a problem's
    commitment from passing for a cluster's."""
    text = f"agent-arena/{label}/1\n{hashlib.sha256(content).hexdigest()}"
    return hmac.new(bytes.fromhex(salt), text.encode(), hashlib.sha256).hexdigest()


def canonical(hotkey: str) -> Hotkey:
    """The hotkey in its one spelling; a text that is no hotkey as it is."""
    return Hotkey(canonical_hotkey(hotkey) or hotkey)
