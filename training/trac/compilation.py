"""A tasklet out of an accepted trace, and the check that it can be solved from what its solver sees (paper, A.1).

The targets are the products the trace recommends, never an author's choice. A tasklet that is returned is
grounded: every target stands on one of the first result pages of a search whose every word is in the prompt, in the
catalogue that trials run on. No target id is in the prompt.
"""

from __future__ import annotations

import re

import msgspec

from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue, SearchRequest
from judge.parse import RefusedReplyError
from judge.render import RenderedTrace
from training.trac.annotation import refused_chat
from training.trac.asking import Asker, Chat
from training.trac.model import OracleRules, Tasklet
from training.trac.prompts import prompt_text
from training.trac.reading import read_json

PROMPT_CHARS = (20, 2_000)
TERMS_MAX = 12
_WORD = re.compile(r"\w+")


class _CompilationReply(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    search_terms: tuple[str, ...]


def compile_tasklet(
    trace: RenderedTrace, targets: tuple[str, ...], model: str, rules: OracleRules, asker: Asker
) -> Tasklet:
    """A tasklet for these targets. Raises ArenaError U3051 with the last reason, and what `Asker.ask` raises."""
    chat = author_chat(trace, targets)
    reason = ""
    for _ in range(rules.replies_max):
        text = asker.ask(model, chat, rules.reply_tokens_max)
        try:
            return check_tasklet(text, targets)
        except RefusedReplyError as refused:
            reason = str(refused)
            chat = refused_chat(chat, text, reason)
    raise ArenaError("U3051", reason)


def author_chat(trace: RenderedTrace, targets: tuple[str, ...]) -> Chat:
    """The conversation that asks for a tasklet."""
    return ("system", prompt_text("tasklet").format(targets=", ".join(targets))), ("user", trace.text)


def check_tasklet(text: str, targets: tuple[str, ...]) -> Tasklet:
    """A tasklet of the agreed form. Raises RefusedReplyError; grounding is `ungrounded`'s."""
    reply = read_json(text, _CompilationReply)
    prompt = " ".join(reply.prompt.split())
    if not PROMPT_CHARS[0] <= len(prompt) <= PROMPT_CHARS[1]:
        raise RefusedReplyError(f"the prompt has {len(prompt)} characters, not {PROMPT_CHARS[0]} to {PROMPT_CHARS[1]}")
    if named := [one for one in targets if one in prompt]:
        raise RefusedReplyError(f"the prompt names the product {named[0]}")
    terms = tuple(dict.fromkeys(" ".join(one.split()) for one in reply.search_terms if one.strip()))
    if not 1 <= len(terms) <= TERMS_MAX:
        raise RefusedReplyError(f"{len(terms)} search terms are not 1 to {TERMS_MAX}")
    words = _words(prompt)
    for term in terms:
        if unseen := sorted(_words(term) - words):
            raise RefusedReplyError(f"the search term {term!r} uses {unseen[0]!r}, which the prompt does not")
    return Tasklet(prompt=prompt, search_terms=terms, target_ids=targets)


def ungrounded(tasklet: Tasklet, catalogue: Catalogue, pages: int) -> tuple[str, ...]:
    """The targets that no search by the prompt's words brings to its first `pages` pages; none if it is grounded."""
    missing = set(tasklet.target_ids)
    for term in tasklet.search_terms:
        for page in range(1, pages + 1):
            if not missing:
                return ()
            missing -= {one.product_id for one in catalogue.search(SearchRequest(q=term, page=str(page)))}
    return tuple(one for one in tasklet.target_ids if one in missing)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
