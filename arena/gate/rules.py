"""The published rules of the static gate: id, class, outcome and meaning. Versioned; an old verdict keeps its version.

`reject` means certain: a stated rule is broken. `review` means heuristic: a person looks, and nothing is refused by it
alone (`arena/gate/README.md`). The class decides what a rejection costs: `integrity` burns the whole cooldown,
`security` the short one, `form` none (`docs/architecture.md#the-mechanism`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from foundation.errors import Failure

RULES_VERSION = "gate/1"  # what a report of this code names; a policy states the version it was written for

FindingOutcome = Literal["reject", "review"]
Severity = Literal["integrity", "security", "form"]


class GateRules(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the gate in a policy."""

    version: str = "gate/1"
    source_bytes: int = 1_000_000
    ast_depth: int = 100
    similarity_review_e4: int = 8_000  # containment from which a person looks
    table_ids: int = 3  # catalogue ids in one view of the literals that make an answer table
    ngram_words: int = 6  # consecutive words of a known problem text that match
    remnant_phrases: int = 0  # unpublished phrases from which a file's code counts as its committer's
    class_e4: int = 0  # of a head that a later file holds joins it to the class; 0: likeness is refused or held instead


class GateRule(msgspec.Struct, frozen=True, kw_only=True):
    """One published rule. `code` is the error shown when the rule rejects."""

    name: str
    outcome: FindingOutcome
    severity: Severity
    meaning: str
    code: str = "A1005"


def _form(name: str, code: str, meaning: str) -> GateRule:
    return GateRule(name=name, outcome="reject", severity="form", meaning=meaning, code=code)


def _security(name: str, outcome: FindingOutcome, meaning: str) -> GateRule:
    return GateRule(name=name, outcome=outcome, severity="security", meaning=meaning)


def _integrity(name: str, outcome: FindingOutcome, meaning: str, code: str = "A1005") -> GateRule:
    return GateRule(name=name, outcome=outcome, severity="integrity", meaning=meaning, code=code)


_ROWS = (
    _form("encoding", "A1001", "not UTF-8, or with an encoding cookie or byte order mark"),
    _form("size", "A1004", "more bytes than the policy allows"),
    _form("parse", "A1002", "the validator's Python can't parse it"),
    _form("depth", "A1002", "the syntax tree is deeper than the policy allows"),
    _form("entry", "A1002", "no `def agent_main(problem)` at module level that takes one argument"),
    _form("secret", "A1005", "what looks like a key, token or password of somebody, comments included"),
    _security("invisible", "reject", "format, private-use or NUL characters; bidi controls"),
    _security("identifier", "reject", "names with non-ASCII characters (look-alikes)"),
    _security("import", "reject", "a module, or a part of a module, that is not on the allow-list"),
    _integrity("decoder-import", "reject", "a module or codec that unpacks hidden data: base64, pickle, UTF-7, ..."),
    _security("builtin", "reject", "eval, exec, open, globals, ... under any name; getattr and its kind as values"),
    _security("attribute", "reject", "dunders outside the allow-list, frames and code objects, modules as attributes"),
    _security(
        "dynamic-attribute", "review", "an attribute chosen by data: getattr with a variable, a class as a value, ..."
    ),
    _integrity("id-table", "reject", "several catalogue ids in literals or names: plain, joined, packed"),
    _integrity("benchmark-text", "review", "six consecutive words of a known problem in a literal, also reversed"),
    _integrity("copy", "reject", "the program of an agent committed earlier, but for names and order", "A1011"),
    _integrity("similarity", "review", "most of its program, or of its texts, stands in an agent committed earlier"),
)

RULES: dict[str, GateRule] = {rule.name: rule for rule in _ROWS}

# What a miner writes instead, by rule: for people, no part of a verdict.
INSTEAD: dict[str, str] = {
    "encoding": "save the file as plain UTF-8, without a byte order mark or a `# coding` line",
    "size": "leave data out of the file: read what you need with tools at run time",
    "parse": "make `python -m py_compile AGENT.py` pass with the Python named in the SDK's page",
    "depth": "split the deep expression into statements",
    "entry": "def agent_main(problem): at module level, with one argument",
    "secret": "delete it, and revoke it where it was issued: sources are published, and one that holds a key can't be",
    "invisible": "delete the character; write it as text, such as \\u200b, if you mean it",
    "identifier": "names in ASCII letters, digits and underscores",
    "import": "a module of the allow-list (json, re, math, ...); models and tools through arena_sdk",
    "decoder-import": "keep texts as plain literals: nothing may have to be unpacked",
    "builtin": "call what you need by its name: a dict of functions for eval or globals, obj.name for getattr",
    "attribute": "use public attributes and methods only",
    "dynamic-attribute": "obj.name, or a dict with keys of your own; type(x).__name__ for a class",
    "id-table": "let a search of the run find products: an id that no search brought scores nothing anyway",
    "benchmark-text": "examples of your own in the prompt: no sentence of a known problem",
    "copy": "a program of your own; the shipped examples may be built upon freely",
    "similarity": "change what the program does, not its names; a prompt of your own; the shipped examples are free",
}
# The same for one module or name.
_NAMES = {
    "open": "there are no files: keep what it would read in the agent's file; what you print comes back with the run",
    "input": 'nobody answers: the request is problem["query"]',
    "copy": "json.loads(json.dumps(x)), dict(x) or list(x)",
    "subprocess": "no process can be started: leave the import out",
    "socket": "there is no network: reach tools and models through ProxyClient or arena_sdk",
    "httpx": "there is no network: reach tools and models through ProxyClient, requests or arena_sdk",
    "aiohttp": "there is no network: reach tools and models through ProxyClient, requests or arena_sdk",
    "openai": "there is no network: reach models through ProxyClient or arena_sdk.llm",
    "pathlib": "there are no files: keep the text in the agent's file",
    "tempfile": "there are no files: keep the data in memory",
    "numpy": "only the standard library is there: write it with math and statistics",
    "pandas": "only the standard library is there: write it with lists and dicts",
}


def what_to_change(rule: str, detail: str) -> str:
    """A sentence for the miner whose file has a finding: of an import or a builtin by its name, else by its rule."""
    name = detail.split(".")[0].split(" ")[0] if rule in ("import", "builtin") else ""
    return _NAMES.get(name) or INSTEAD.get(rule, "")


GateOutcome = Literal["accept", "review", "reject"]

FINDINGS_PER_RULE = 20  # a hostile file must not make a hostile report
LIKENESS = frozenset({"similarity"})  # rules that hold an agent for likeness to another's; all others are heuristics
_SEVERITY_ORDER: tuple[Severity, ...] = ("integrity", "security", "form")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule met at one line (0: the file as a whole)."""

    rule: str
    outcome: FindingOutcome
    severity: Severity
    line: int
    detail: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "file"
        return f"{self.outcome}: {self.rule}, {where}" + (f": {self.detail}" if self.detail else "")


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one source. `outcome` is the worst of its findings."""

    outcome: GateOutcome
    findings: tuple[Finding, ...]
    rules_version: str
    source_sha256: str
    inputs_sha256: str

    @property
    def rejections(self) -> tuple[Finding, ...]:
        """The findings that reject, by line."""
        return tuple(finding for finding in self.findings if finding.outcome == "reject")

    @property
    def severity(self) -> Severity | None:
        """The costliest class among the rejections, or None when nothing rejects."""
        classes = {finding.severity for finding in self.rejections}
        return next((severity for severity in _SEVERITY_ORDER if severity in classes), None)

    @property
    def failure(self) -> Failure | None:
        """The first rejection as a coded failure of the agent, or None."""
        if not self.rejections:
            return None
        first = self.rejections[0]
        return Failure(code=RULES[first.rule].code, detail=f"{first.rule}, line {first.line}: {first.detail}")


def finding(rule: str, line: int, detail: str = "") -> Finding:
    """A finding with the outcome and class its rule is published with. Raises KeyError for an unpublished rule."""
    entry, detail = RULES[rule], detail[:300].encode("utf-8", "backslashreplace").decode()
    return Finding(rule=rule, outcome=entry.outcome, severity=entry.severity, line=line, detail=detail)


def make_report(
    findings: Iterable[Finding], *, rules_version: str, source_sha256: str, inputs_sha256: str
) -> GateReport:
    """The report over `findings`: sorted by line, without duplicates, at most `FINDINGS_PER_RULE` of each rule."""
    unique: list[Finding] = []
    counts: Counter[str] = Counter()
    for found in sorted(set(findings), key=lambda found: (found.line, found.outcome, found.rule, found.detail)):
        counts[found.rule] += 1
        if counts[found.rule] <= FINDINGS_PER_RULE:
            unique.append(found)
    outcomes = {found.outcome for found in unique}
    return GateReport(
        outcome="reject" if "reject" in outcomes else "review" if outcomes else "accept",
        findings=tuple(unique),
        rules_version=rules_version,
        source_sha256=source_sha256,
        inputs_sha256=inputs_sha256,
    )
