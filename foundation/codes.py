"""The one registry of error codes: A1xxx agent, V2xxx validator, U3xxx upstream, P4xxx problem or catalogue.

Each row, in groups of one cost, says what happened and what to do next; `arena explain CODE` prints it. Codes are never
reused or renumbered: records name them for ever. A branch compares with a name from the end of this file, never with a
code's text; a code that is only raised needs no name.
"""

from __future__ import annotations

import enum

import msgspec


class Owner(enum.Enum):
    """Whose failure it is. Only the agent's own failures count against its score."""

    AGENT = "agent"
    VALIDATOR = "validator"
    UPSTREAM = "upstream"
    PROBLEM = "problem"


_OWNER_BY_LETTER = {owner.name[0]: owner for owner in Owner}


def owner_of(code: str) -> Owner:
    """The owner, whom the first letter of a code names. Raises KeyError for another letter."""
    return _OWNER_BY_LETTER[code[0]]


class ErrorCode(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the registry; every field is a sentence shown to people."""

    code: str
    title: str  # what happened, lower case, no full stop
    cost: str  # what it costs whom
    remedy: str  # the next command or action
    is_retryable: bool = False

    @property
    def owner(self) -> Owner:
        """The owner, read from the first letter of the code."""
        return owner_of(self.code)


CALL_FAILS = "this call fails; the agent may go on"
STOPS = "the command stops; nothing already written is lost"
NO_SCORE = "no score is given; the attempt is recorded and tried again"
WAITS = "what needs it waits and is tried again; the rest goes on"
NOTHING = "nothing was written, taken or answered"
NOT_TRUSTED = "nothing of it is used"
LEFT_OUT = "it is left out, named and counted"
NO_RACE = "no race can open with it; submissions still qualify"
ASKS_NEXT = "nothing of its answer is used; the next one is asked"


def rows(cost: str, *told: tuple[str, str, str], retry: bool = False) -> tuple[ErrorCode, ...]:
    """Codes of one cost. `told`: code, what happened, what to do. `retry`: trying again later may help."""
    return tuple(
        ErrorCode(code=code, title=title, cost=cost, remedy=remedy, is_retryable=retry) for code, title, remedy in told
    )


AGENT = (
    *rows(
        "the submission is rejected",
        ("A1001", "agent file is not UTF-8", "save the file as UTF-8 without an encoding cookie"),
        ("A1002", "agent file does not parse, or lacks agent_main(problem)", "`arena check AGENT.py` names the line"),
        ("A1004", "agent file is too large", "keep the one file within the size that the policy names"),
        ("A1005", "gate rejected the agent", "change the line that the finding names"),
        ("A1006", "cooldown has not passed", "wait for the block named, then submit again"),
        ("A1007", "submission's signature or commitment does not match", "sign with the hotkey that committed"),
        ("A1008", "hotkey is not registered on the subnet", "`--register` locally, else `btcli subnets register`"),
        ("A1010", "agent name is malformed", "use 1 to 64 letters, digits, dots, dashes or underscores"),
        ("A1011", "agent is a copy", "another hotkey committed this program earlier; submit your own work"),
    ),
    *rows(
        "nothing changes: what was handed in before goes on",
        (
            "A1012",
            "another submission of this hotkey is decided or being decided",
            "watch it with `arena status`, or take it back with `arena withdraw`",
        ),
    ),
    *rows(STOPS, ("A1009", "agent file cannot be read", "check the path and its permissions")),
    *rows(
        "counts as a failure on this problem",
        ("A1020", "agent ran out of wall-clock time", "take fewer steps, or stop at the first match"),
        ("A1021", "agent used up a limit of its episode", "ask less: the text names the limit (steps, calls, ...)"),
        ("A1024", "agent raised an exception", "read the traceback of the attempt and change the line it names"),
        ("A1026", "agent flooded its output", "print less; stdout and stderr are capped"),
        (
            "A1027",
            "agent broke the protocol, or sent or returned what is not plain JSON",
            "use `arena_sdk`; return None, or a plain dict or list",
        ),
        ("A1028", "agent process died", "look for a crash, os._exit or memory over the limit"),
        ("A1029", "agent sent a frame over the limit", "send smaller tool arguments and messages"),
        ("A1030", "agent used up memory, processor time, processes or disk", "use less; its processes count together"),
        (
            "A1044",
            "restarted agent did not ask again what it had been answered",
            "let requests follow from the problem and the replies alone: no clock and no random numbers",
        ),
        ("A1060", "agent ended without a recommendation", "call recommend_product before terminate"),
    ),
    *rows(
        CALL_FAILS,
        ("A1040", "model request is malformed", "send `model` and text `messages` only"),
        ("A1041", "model is not on the policy's list", "pick a model from `arena_sdk.llm.models()`"),
        ("A1042", "prefilled assistant turn or forced tool choice", "let the model choose its own tool calls"),
        ("A1050", "tool call is malformed", "follow the tool's schema in `arena_sdk.tools.schemas()`"),
    ),
    *rows(
        f"{CALL_FAILS}; at the last attempt the policy allows, the problem counts as failed",
        (
            "A1043",
            "model endpoints refuse this request and answer a neutral one of its shape",
            "leave out what a provider refuses, such as words that its moderation blocks",
        ),
    ),
)

VALIDATOR = (
    *rows(
        STOPS,
        ("V2001", "no sandbox level holds on this host for this agent", "run `arena doctor`: it names the fix"),
        ("V2010", "index is missing, broken or truncated", "build it again with `arena catalogue build`"),
        ("V2014", "address cannot be served", "choose an address of this host and a free port"),
        ("V2020", "Postgres did not start", "mend what the text names; the end of a log that it names says more"),
        ("V2023", "store schema is not this release's", "older: `arena store migrate`; newer: run the newer release"),
        ("V2024", "another process runs this hotkey", "stop the other process; one validator per hotkey"),
        (
            "V2026",
            "Postgres server can't be used as it is",
            "do what the text says: version 15 or newer, a database and a login that it has, tools of its version",
        ),
        ("V2027", "a file or folder cannot be used", "check the path and its permissions"),
        (
            "V2029",
            "object store refuses, or its location can't be used",
            "check the URL (file:///folder or s3://bucket/prefix?endpoint=...&region=...) and AWS_* in the environment",
        ),
        ("V2030", "wrong setting or option", "`--help` lists what may be given"),
        ("V2052", "worker process died", "look for memory pressure, then run it again with fewer processes"),
        ("V2060", "host is missing something this software needs", "mend or install what the text names"),
        ("V2062", "this validator may not race under the policy", "do what the detail asks"),
        ("V2120", "what training was given cannot be used", "correct the key, file or value named here"),
        ("V2123", "guard ended the training run", "read its detail, mend the cause, then run the stage again"),
        ("V2124", "training run's folder or model can't be used", "see the detail; another recipe needs a new folder"),
        ("V2125", "training ended by SIGTERM", "give the same command again: it goes on where it was"),
        ("V2147", "no trace passed the filter", "read the funnel above: the code that removed most comes first"),
        ("V2148", "models would cost more than allowed", "raise --price-max, or give --rows; --dry-run shows prices"),
        ("V2166", "lineage of a checkpoint does not hold", "put back what was changed, or train again in a new folder"),
    ),
    *rows(
        NO_SCORE,
        ("V2002", "sandbox failed to start", "run `arena doctor`"),
        ("V2004", "host loop failed", "report the traceback in the log"),
        ("V2005", "episode worker died", "the supervisor restarts it; look for memory pressure"),
        ("V2006", "episode was abandoned because its lease was lost", "nothing to do; another attempt follows"),
        ("V2040", "title matcher is not available", "install the bank release that carries the accepted titles"),
        retry=True,
    ),
    *rows(
        NO_SCORE,
        ("V2009", "an episode, or judging a trace, ended two workers", "report the agent and problem named here"),
        ("V2025", "store can't hold this value", "report it: a policy's limit should have ended the agent earlier"),
        ("V2150", "kept source is not the submitted one", "run `arena records verify`, then restore a backup"),
        (
            "V2180",
            "recording holds no reply to this request",
            "record again with --record; --record and --replay of one file ask the endpoint for what is missing",
        ),
    ),
    *rows(
        WAITS,
        ("V2007", "no episode worker can be started in a slot", "nothing; if it stays so, run `arena doctor`"),
        ("V2008", "cluster machine runs something else than this one", "install the same release, index and policy"),
        ("V2021", "Postgres is not reachable", "check the address, the user and that the server runs"),
        ("V2028", "object store is not reachable", "check its address and the net"),
        (
            "V2032",
            "key that wallet_proxy names can't sign for this hotkey on chain",
            "the hotkey's account adds it as a proxy of type NonCritical, without delay: btcli proxy add",
        ),
        ("V2064", "node's file or folder can't be read or written", "make room, or give this user the path named here"),
        ("V2104", "operator's newer policy is not in force here yet", "restart the validator"),
        ("V2115", "disk is full", "free space in the state, database and checkpoint folders"),
        ("V2117", "checkpoint, anchor or race is late", "look in the log what it waits for: disk, chain, others"),
        ("V2206", "a process of the node ended", "read why in the log; where it goes on, run `arena doctor`"),
        retry=True,
    ),
    *rows(
        NOTHING,
        ("V2022", "store refused the write", "another process holds this hotkey's log, or a lease was lost"),
        ("V2084", "public reads are away, or answer something else", "check the address, and that `serve_port` is set"),
        ("V2085", "sealed batch cannot be read before its round", "wait for the moment named here"),
        ("V2110", "request is unsigned, for another receiver, old or repeated", "sign each one anew; check the clock"),
        ("V2112", "caller asks more than its share", "wait as `retry-after` says, or follow `GET /v1/tail`"),
        ("V2113", "validator does not have this, or may not show it yet", "ask once its block is final, or another"),
        ("V2200", "validator takes no submissions now", "submit to another, or here later; commit nothing again"),
        ("V2203", "request came in too slowly", "send it again over a faster line"),
        retry=True,
    ),
    *rows(
        NOTHING,
        ("V2053", "log cannot prove this", "name a signed checkpoint that covers it, or wait for the validator's next"),
        ("V2081", "request is malformed", "correct the parameter named here; GET /openapi.json describes them"),
        ("V2082", "public API does not have this", "GET /openapi.json lists the routes, GET /v1/head the logs"),
        ("V2089", "what was asked for is not public", "wait until the moment named here, if one is"),
        ("V2111", "caller holds no validator permit", "ask again once the chain shows the permit"),
        ("V2202", "request is too large", "send one agent file within the policy's size"),
        (
            "V2207",
            "cluster can't be used",
            "run `--cluster` where no wallet is; `ray status` says if it runs",
        ),
    ),
    *rows(
        NOT_TRUSTED,
        ("V2050", "record or settlement does not verify", "keep the store; compare it with the last signed checkpoint"),
        ("V2056", "backup is damaged or incomplete", "restore another backup, or make this one again"),
        (
            "V2080",
            "log contradicts a checkpoint that was signed of it",
            "keep the store; compare it with the one named here: `arena records verify --checkpoint FILE`",
        ),
        ("V2095", "export does not verify, or nobody vouches for it", "see `arena records verify --export FOLDER`"),
        ("V2099", "held-out problem among training rows", "run the leak guard on every source before it is joined"),
    ),
    *rows(
        LEFT_OUT,
        ("V2097", "row cannot be converted", "look at the named place; a row is never repaired by guessing"),
    ),
    *rows(
        "no work is done while it is down; leases run out and are recorded at the next start",
        (
            "V2116",
            "node gives no sign of life",
            "look at what it printed last (by systemd: journalctl), start it: `arena validator`",
        ),
    ),
    *rows(
        "it is cancelled on every validator alike; the last good weights stay",
        ("V2100", "race ended without a quorum", "see which validators took part: under half of their stake agreed"),
    ),
    *rows(
        "its own result of the race sets no weights",
        (
            "V2101",
            "other validators settled a race otherwise",
            "compare release, policy, batch and clock, and who answers",
        ),
    ),
    *rows(
        "what stands in its place stays; nothing is published with it",
        ("V2105", "file cannot be one of the operator's release", "read the reason; give whole, signed files"),
    ),
)

UPSTREAM = (
    *rows(
        NO_SCORE,
        (
            "U3001",
            "model endpoint is missing, refuses the key or lacks the model",
            "set OPENAI_BASE_URL and OPENAI_API_KEY, or [[upstreams]] in arena.toml; name a model that it lists",
        ),
        ("U3002", "model endpoint failed after retries", "check that its address answers, then run it again"),
        ("U3003", "model endpoint answered with something unreadable", "check that it speaks the OpenAI protocol"),
        ("U3004", "model endpoint refuses more requests for now", "take fewer workers, or raise its rate limit"),
        (
            "U3007",
            "model endpoint answers, but no request of this shape",
            "read its words: tools need a parser of calls there, long requests context, and each model must be served",
        ),
        (
            "U3008",
            "request to a model endpoint waited too long for its turn here",
            "raise the endpoint's requests_at_once, take fewer workers, or add an endpoint",
        ),
        ("U3010", "catalogue lookup failed", "check the catalogue service"),
        retry=True,
    ),
    *rows(
        "the attempt is recorded and counted; at the last one the policy allows, the problem counts as failed",
        (
            "U3006",
            "model endpoint refuses the agent's request and answers a neutral one of its shape",
            "leave out what the provider refuses; for a validator, a second endpoint settles it within the call",
        ),
        retry=True,
    ),
    *rows(
        "the verdict is owed; the stored body is judged later",
        ("U3020", "judge endpoint failed after retries", "check the judge endpoint"),
        ("U3021", "judge gave no usable verdict", "read the refused replies with `arena view`"),
        ("U3022", "cap on what models may cost is reached", "raise it in [budget], or ask cheaper models"),
        retry=True,
    ),
    *rows(
        WAITS,
        ("U3030", "chain is not reachable", "check --subtensor.network and that the chain answers there"),
        ("U3031", "chain refused the extrinsic", "read the chain's answer above"),
        ("U3032", "beacon round is not available", "wait for the round; it is public"),
        (
            "U3033",
            "chain node no longer keeps the state of that block",
            "name an archive node as `network`, such as wss://archive.chain.opentensor.ai:443",
        ),
        ("U3034", "chain's newest block stands still", "look whether only this node stands; name another as `network`"),
        (
            "U3035",
            "hotkey is not registered on the subnet, or holds no validator permit",
            "without a uid: `btcli subnets register` with the coldkey; with one: stake, and wait for the next epoch",
        ),
        ("U3036", "validators run under different policies or guests", "compare policy hashes; update who is behind"),
        ("U3037", "chain asks for another release", "install the newest one"),
        ("U3039", "chain has no such subnet", "check `netuid` and `network`; a node that is syncing knows none"),
        ("U3048", "operator's files are not here yet", "see `arena operator publish`; one that has them must answer"),
        ("U3049", "chain has no such block yet", "wait for the block, or name an earlier one"),
        retry=True,
    ),
    *rows(
        ASKS_NEXT,
        ("U3040", "another validator is away or too slow", "nothing here; its operator looks at address and port"),
        ("U3041", "another validator refuses to answer", "read why; it asks for a permit and a right clock"),
        ("U3042", "another validator's answer is not what the chain holds", "nothing here; tell its operator which"),
        ("U3046", "another validator shows no newer release than is held here", "nothing, while it catches up"),
        retry=True,
    ),
    *rows(
        "none of its results count in this race; what was settled before stays",
        ("U3043", "a validator's log cannot be held", "ask its operator; held/ignored.txt ignores a hotkey"),
    ),
    *rows(
        "a commitment that was made stands; the source has not been handed in",
        ("U3052", "no validator can be asked, or none took the submission", "read each reason; name some with --url"),
        retry=True,
    ),
)

PROBLEM = (
    *rows(
        STOPS,
        ("P4001", "file of problems or titles cannot be read", "fix the line and field named, or make the file again"),
        ("P4008", "web problems cannot be scored by rule", "leave the web rows out of the file"),
        ("P4009", "problem has no usable id or query, or the id of another", "fix the line and field named"),
        ("P4011", "catalogue or bank cannot yield the problems asked for", "ask for fewer, or use a larger catalogue"),
    ),
    *rows(
        "the problem is withdrawn; nobody is charged",
        ("P4003", "problem has a malformed bucket, reward or voucher", "fix the field named"),
        ("P4005", "product document is malformed", "fix the document named and build the catalogue again"),
        ("P4006", "answer product is not in the catalogue", "use problems made for this catalogue"),
        ("P4013", "problem is unsolvable, free or ambiguous, or has no variant", "leave it out, or correct its reward"),
    ),
    *rows(
        NOT_TRUSTED,
        ("P4010", "sealed batch or signed file fails its hash or signature", "take the file again from its maker"),
    ),
    *rows(
        "nothing was read",
        (
            "P4026",
            "key, or beacon signature, does not open this file",
            "use the key it was frozen with, or the round that it names",
        ),
    ),
    *rows(
        NO_RACE,
        (
            "P4014",
            "bank has no batch for the next race",
            "the text says what is missing; seal with `arena problems seal`, or ask the operator",
        ),
        retry=True,
    ),
    *rows(NO_RACE, ("P4029", "problem may not be raced", "leave out what the detail names")),
)

ROWS = (*AGENT, *VALIDATOR, *UPSTREAM, *PROBLEM)


# agent
COOLDOWN = "A1006"
OUT_OF_TIME = "A1020"
RESOURCE_LIMIT = "A1021"
NOT_COMMITTED = "A1007"
BAD_REQUEST = "A1040"
FORCED_TURN = "A1042"
MODEL_REFUSED = "A1043"
RESTART_DIVERGED = "A1044"
BAD_CALL = "A1050"

# validator
HOST_FAILED = "V2004"
WORKER_DIED = "V2005"
LEASE_LOST = "V2006"
SLOT_RESTS = "V2007"
HOST_UNLIKE = "V2008"
JOB_QUARANTINED = "V2009"
STORE_AWAY = "V2021"  # nobody knows whether what was asked for happened
HOTKEY_IN_USE = "V2024"
STORE_CANNOT_HOLD = "V2025"
VERIFIER_DIED = "V2052"
HOST_LACKS = "V2060"
TAIL_BAD_REQUEST = "V2081"
TAIL_LACKS = "V2082"
SETTLED_OTHERWISE = "V2101"
POLICY_WAITS = "V2104"
FILE_UNUSABLE = "V2105"
PEER_LACKS = "V2113"
GUARD_STOPPED = "V2123"
RUN_UNUSABLE = "V2124"
NOT_RECORDED = "V2180"

# upstream
NO_ENDPOINT = "U3001"
MODEL_FAILED = "U3002"
MODEL_UNREADABLE = "U3003"
MODEL_BUSY = "U3004"
REQUEST_PROVOKED = "U3006"
SHAPE_NOT_SERVED = "U3007"
NO_TURN = "U3008"
JUDGE_FAILED = "U3020"
JUDGE_UNUSABLE = "U3021"
CAP_REACHED = "U3022"
CHAIN_STANDS = "U3034"
PEER_AWAY = "U3040"
PEER_REFUSED = "U3041"
PEER_LIED = "U3042"
LOG_UNFIT = "U3043"
RELEASE_OLDER = "U3046"
FILES_LACKING = "U3048"

# problem
WEB_PROBLEM = "P4008"
NO_BATCH_LEFT = "P4014"


CODES: dict[str, ErrorCode] = {row.code: row for row in ROWS}


def lookup(code: str) -> ErrorCode:
    """The registry's row for `code`. Raises KeyError for a code that is not registered: a bug of ours."""
    return CODES[code]
