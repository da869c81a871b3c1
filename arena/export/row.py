"""A view's row: a trajectory's facts, its conversation, the tools of its profile, and what stands beside the log.

Every format writes from this one value, so no two formats can disagree about a trajectory.
"""

from __future__ import annotations

import functools

import msgspec

from arena.export.conversation import Conversation, converse
from arena.export.facts import EpisodeFacts, TrajectoryFacts, ViewContext, episode_facts, facts_of, opinions_of
from arena.export.model import Trajectory
from foundation.canonical import text_hash
from harness.chat import ChatMessage
from harness.tools.registry import PROFILES, profile_schemas
from judge.verdict import Opinion

UNKNOWN_TOOLS = "[]"
LOG_ALONE = ViewContext()


class ViewRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a format writes of one trajectory. `tools` is an OpenAI `tools` array, JSON text."""

    facts: TrajectoryFacts
    conversation: Conversation
    tools: str
    opinions: tuple[Opinion, ...]
    episode: EpisodeFacts | None  # None in exports of version 1

    @property
    def prompt(self) -> tuple[ChatMessage, ...]:
        """The messages before the first assistant turn."""
        return self.conversation.messages[: self.conversation.prompt_length]

    @property
    def completion(self) -> tuple[ChatMessage, ...]:
        """The messages from the first assistant turn on."""
        return self.conversation.messages[self.conversation.prompt_length :]


def row_of(trajectory: Trajectory, context: ViewContext = LOG_ALONE) -> ViewRow:
    """The row of a trajectory. Pure and total."""
    conversation = converse(trajectory.body)
    return ViewRow(
        facts=facts_of(trajectory, conversation),
        conversation=conversation,
        tools=tools_of(trajectory.body.tool_profile, trajectory.body.tools_sha256),
        opinions=opinions_of(trajectory),
        episode=episode_facts(trajectory, context) if context.version > 1 else None,
    )


@functools.lru_cache(maxsize=64)
def tools_of(profile: str, tools_sha256: str) -> str:
    """The schemas of a profile, JSON text; `[]` where this release does not have those the record names by hash."""
    schemas = profile_schemas(profile) if profile in PROFILES else UNKNOWN_TOOLS
    return schemas if text_hash(schemas) == tools_sha256 else UNKNOWN_TOOLS
