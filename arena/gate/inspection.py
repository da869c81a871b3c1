"""The gate: one pure function from bytes and published rules to a report, here or in a process of its own.

Nothing of the source is executed. The gate raises the price of cheating and saves evaluation time; it is not a
boundary: the sandbox contains, and the run-time rule on surfaced ids makes answer tables worthless. Gate and guest
see the same program: the bytes are decoded once as UTF-8, an encoding cookie or byte order mark that could make
another reader see other text is refused.

Hostile source may exhaust or crash a parser: validators call `inspect_isolated`, and then only a child dies. A source
that kills the child or uses up its CPU time is rejected with a finding that says so; a child that dies for a reason
of the host's is ArenaError V2004, never a verdict. The child reads one request from its standard input, maps what is
known and can't change it, holds no secret in its environment and executes nothing of the source.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import io
import itertools
import mmap
import os
import re
import resource
import signal
import sys
import tokenize
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from arena.gate.knowledge import GateKnowledge, collect_literals, table_findings
from arena.gate.reach import reach_findings
from arena.gate.rules import FINDINGS_PER_RULE, RULES_VERSION, Finding, GateReport, GateRules, finding, make_report
from arena.gate.scopes import Tree
from arena.secrets import find_secrets
from foundation.errors import ArenaError

if TYPE_CHECKING:  # NumPy and OpenSSL would double what a child imports: it does so only where it compares
    from arena.gate.likeness import Author, Neighbour

ENTRY = "agent_main"
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_NEWLINE = re.compile(r"\r\n|\r|\n")
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNWRITABLE = 10**4_300  # Python parses such a number in hexadecimal, and writes none
_HIDDEN_CATEGORIES = frozenset({"Cf", "Co", "Cs"})


def read_text(source: bytes, rules: GateRules) -> tuple[str, list[Finding]]:
    """The text of a source, or the finding that stops the inspection."""
    if len(source) > rules.source_bytes:
        return "", [finding("size", 0, f"{len(source)} bytes of {rules.source_bytes}")]
    if source.startswith(b"\xef\xbb\xbf"):
        return "", [finding("encoding", 1, "byte order mark")]
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        return "", [finding("encoding", line, f"byte {source[error.start]:#04x}")]
    for line, content in enumerate(_NEWLINE.split(text, 2)[:2], 1):
        cookie = _COOKIE.match(content)
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            return "", [finding("encoding", line, f"encoding cookie {cookie[1]}")]
    return text, []


def parse(text: str, rules: GateRules) -> tuple[Tree | None, list[Finding]]:
    """The tree, and the findings on hidden characters, syntax, depth and entry.

    There is no tree when a finding stops the inspection.
    """
    found = list(itertools.islice(hidden_characters(text), FINDINGS_PER_RULE))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape sequence is the miner's business
            module = ast.parse(text)
    except SyntaxError as error:
        return None, [*found, finding("parse", error.lineno or 0, error.msg)]
    except (ValueError, RecursionError, MemoryError) as error:
        return None, [*found, finding("parse", 0, type(error).__name__)]
    tree = Tree(module)
    if tree.depth > rules.ast_depth:
        return None, [*found, finding("depth", 0, f"{tree.depth} of {rules.ast_depth}")]
    for node in tree.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= _UNWRITABLE:
            return None, [*found, finding("parse", node.lineno, "a number of more than 4,300 digits")]
    defined = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == ENTRY]
    if not defined:
        return tree, [*found, finding("entry", 0, ENTRY)]
    arguments = defined[-1].args
    positional = arguments.posonlyargs + arguments.args
    required = len(positional) - len(arguments.defaults)
    keywords = sum(default is None for default in arguments.kw_defaults)
    if required > 1 or keywords or not (positional or arguments.vararg):
        found.append(finding("entry", defined[-1].lineno, f"{ENTRY} does not take exactly one argument"))
    return tree, found


def hidden_characters(text: str) -> Iterator[Finding]:
    """Findings on characters that an editor does not show: in code and texts all of them, in comments bidi controls."""
    if text.isascii() and "\0" not in text:
        return
    comments: dict[int, int] = {}  # by line: where its comment begins
    with contextlib.suppress(tokenize.TokenError, SyntaxError, ValueError):  # what can't be read counts as code
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token.start[1]
    for number, line in enumerate(text.split("\n"), 1):
        for column, character in enumerate("" if line.isascii() and "\0" not in line else line):
            is_hidden = character == "\0" or unicodedata.category(character) in _HIDDEN_CATEGORIES
            if character in _BIDI or (is_hidden and column < comments.get(number, len(line))):
                yield finding("invisible", number, f"U+{ord(character):04X}")


def inspect(
    source: bytes | str,
    rules: GateRules,
    knowledge: GateKnowledge,
    neighbours: Sequence[Neighbour] = (),
    author: Author | None = None,
) -> GateReport:
    """Check one agent file against the published rules (`arena.gate.rules.RULES`).

    `neighbours` are the other agents that were not rejected, `author` is who committed this one and when: with the same
    values every validator gets the same report. A file that can't be read or parsed gives a report with the one finding
    that says so; no input raises.
    """
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    return _report(data, _findings(data, rules, knowledge, neighbours, author), knowledge, neighbours, author)


def _report(
    data: bytes, found: Sequence[Finding], known: GateKnowledge, neighbours: Sequence[Neighbour], author: Author | None
) -> GateReport:
    from arena.gate.likeness import inputs_hash

    source_sha256 = hashlib.sha256(data).hexdigest()
    inputs_sha256 = inputs_hash(known.inputs_sha256, author, neighbours)
    return make_report(found, rules_version=RULES_VERSION, source_sha256=source_sha256, inputs_sha256=inputs_sha256)


def _findings(
    data: bytes, rules: GateRules, knowledge: GateKnowledge, neighbours: Sequence[Neighbour], author: Author | None
) -> list[Finding]:
    text, found = read_text(data, rules)
    if found:
        return found
    found = [
        finding("secret", data.count(b"\n", 0, one.start) + 1, f"what looks like a credential ({one.kind})")
        for one in find_secrets(data)[:FINDINGS_PER_RULE]
    ]
    tree, parsed = parse(text, rules)
    found += parsed
    if tree is None:
        return found
    literals = collect_literals(tree)
    found += reach_findings(tree, literals)
    found += table_findings(tree, literals, rules, knowledge)
    if rules.class_e4 or not neighbours:
        return found
    from arena.gate.likeness import similarity_findings, sketch_of

    return found + similarity_findings(sketch_of(tree), author, neighbours, knowledge, rules)


CPU_LIMIT_S = 20
NICENESS = 19  # idle time: a seventieth of a core's share beside an episode
WALL_LIMIT_S = 1_800.0  # twenty seconds of processor time at that share, on a machine that is full
MEMORY_BYTES = 4 << 30  # address space, not resident memory
EXIT_OUT_OF_MEMORY = 70
_FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU}
_ROOT = __file__.rsplit("/", 3)[0]


class _Request(msgspec.Struct, frozen=True):
    """What `inspect` takes, but for what is known, which the child maps, and the child's own limit."""

    source: bytes
    rules: GateRules
    compared: bytes  # neighbours and author, encoded; empty without neighbours
    knowledge_fd: int
    cpu_limit_s: int


def inspect_isolated(
    source: bytes | str,
    rules: GateRules,
    knowledge: GateKnowledge,
    neighbours: Sequence[Neighbour] = (),
    author: Author | None = None,
    *,
    cpu_limit_s: int = CPU_LIMIT_S,
    wall_limit_s: float = WALL_LIMIT_S,
) -> GateReport:
    """`arena.gate.inspection.inspect` in a child process. Blocks: call it in a thread from async code.

    Raises ArenaError V2004 when the child could not run to its end for a reason that isn't the source's.
    """
    import subprocess

    from arena.gate.likeness import plain_array

    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    compared = msgspec.msgpack.encode((neighbours, author), enc_hook=plain_array) if neighbours else b""
    command = [sys.executable, "-P", "-S", "-m", "arena.gate.inspection"]
    try:
        with os.fdopen(os.memfd_create("gate-request"), "w+b") as asked:  # megabytes, which a pipe takes in bites
            known = knowledge.file  # held until the child has it
            fd = known.fileno()
            asked.write(msgspec.msgpack.encode(_Request(data, rules, compared, fd, cpu_limit_s)))
            asked.seek(0)
            done = subprocess.run(
                command, stdin=asked, capture_output=True, env=child_environment(), timeout=wall_limit_s, pass_fds=[fd]
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArenaError("V2004", f"the gate's process: {error}") from error
    if done.returncode == 0:
        return _report(data, msgspec.json.decode(done.stdout, type=list[Finding]), knowledge, neighbours, author)
    if done.returncode == EXIT_OUT_OF_MEMORY:
        detail = "the parser ran out of memory"
    elif -done.returncode in _FATAL_SIGNALS:
        detail = f"the parser did not survive it: {signal.Signals(-done.returncode).name}"
    else:
        told = done.stderr.decode("utf-8", "replace")[-500:]
        raise ArenaError("V2004", f"the gate's process ended with {done.returncode}: {told}")
    return _report(data, [finding("parse", 0, detail)], knowledge, neighbours, author)


def main() -> int:
    """The child: limit its own time and memory, inspect, print the findings of a report as JSON."""
    os.nice(NICENESS)
    gc.disable()  # a tree holds no garbage, and is walked again and again while it grows
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Request)
    known = mmap.mmap(request.knowledge_fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    knowledge = msgspec.msgpack.decode(known, type=GateKnowledge)  # its arrays are views of the map
    compared: tuple[Sequence[Neighbour], Author | None] = ((), None)
    if request.compared:
        from arena.gate import likeness

        kind = tuple[tuple[likeness.Neighbour, ...], likeness.Author | None]
        compared = msgspec.msgpack.decode(request.compared, type=kind, dec_hook=likeness.read_array)
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_CPU: request.cpu_limit_s}
    for limit, value in limits.items():  # the hard one stays, so that too much CPU time is SIGXCPU and not SIGKILL
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        found = _findings(request.source, request.rules, knowledge, *compared)
    except MemoryError:
        return EXIT_OUT_OF_MEMORY
    report = make_report(found, rules_version=RULES_VERSION, source_sha256="", inputs_sha256="")
    sys.stdout.buffer.write(msgspec.json.encode(report.findings))
    sys.stdout.flush()
    return 0


def child_environment() -> dict[str, str]:
    """What a process that reads a stranger's source has of ours: no secret, and the way to the code it runs."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)]), "OPENBLAS_NUM_THREADS": "1"}


if __name__ == "__main__":
    os._exit(main())  # nothing is left to take apart
