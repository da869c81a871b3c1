"""The one registry of error codes: A1xxx agent, V2xxx validator, U3xxx upstream, P4xxx problem or catalogue.

Each row says what happened, what it costs and what to do next; `arena explain CODE` prints it. Codes are never
reused or renumbered: records name them for ever.
"""

from __future__ import annotations

from problems.errors import ErrorCode


def _row(code: str, title: str, cost: str, remedy: str, retry: bool = False) -> ErrorCode:
    return ErrorCode(code=code, title=title, cost=cost, remedy=remedy, is_retryable=retry)


_COUNTS = "counts as a failure on this problem"
_REJECTED = "the submission is rejected"
_NO_SCORE = "no score is given; the attempt is recorded and retried"
_STOPS = "the command stops; nothing already written is lost"
_WITHDRAWN = "the problem is withdrawn; nobody is charged"

_ROWS = (
    # -- agent: the file
    _row("A1001", "agent file is not UTF-8", _REJECTED, "save the file as UTF-8 without an encoding cookie"),
    _row(
        "A1002", "agent file does not parse", _REJECTED, "run `python -m py_compile AGENT.py` with the guest's Python"
    ),
    _row(
        "A1003",
        "agent file has no agent_main(problem)",
        _REJECTED,
        "define `def agent_main(problem: dict)` at module level",
    ),
    _row("A1004", "agent file is too large", _REJECTED, "keep the one file within the size the policy names"),
    _row(
        "A1005",
        "gate rejected the agent",
        _REJECTED,
        "read the finding's rule and line, then run `arena check AGENT.py`",
    ),
    _row("A1006", "cooldown has not passed", _REJECTED, "wait for the block named, then submit again"),
    _row(
        "A1007",
        "submission signature or commitment does not match",
        _REJECTED,
        "sign with the hotkey that made the commitment",
    ),
    _row("A1008", "hotkey is not registered on the subnet", _REJECTED, "register the hotkey, then submit again"),
    _row("A1009", "agent file cannot be read", _STOPS, "check the path and its permissions"),
    _row("A1010", "agent name is malformed", _REJECTED, "use 1 to 64 letters, digits, dots, dashes or underscores"),
    # -- agent: the run
    _row("A1020", "agent ran out of wall-clock time", _COUNTS, "lower the number of steps or stop at the first match"),
    _row("A1021", "agent used up its steps", _COUNTS, "recommend earlier; a step is one model completion"),
    _row("A1022", "agent used up its tool calls", _COUNTS, "make fewer tool calls"),
    _row("A1023", "agent used up its tokens", _COUNTS, "send shorter messages or fewer completions"),
    _row("A1024", "agent raised an exception", _COUNTS, "run `arena run AGENT.py` and read the traceback"),
    _row("A1025", "agent returned something that is not JSON", _COUNTS, "return None, or a plain dict or list"),
    _row("A1026", "agent flooded its output", _COUNTS, "print less; stdout and stderr are capped"),
    _row("A1027", "agent broke the RPC protocol", _COUNTS, "use `arena_sdk`; never write to descriptors 0 and 1"),
    _row("A1028", "agent process died", _COUNTS, "look for a crash, os._exit or memory over the limit"),
    _row("A1029", "agent sent a frame over the limit", _COUNTS, "send smaller tool arguments and messages"),
    _row("A1030", "agent exceeded its memory", _COUNTS, "use less memory; all processes of the agent count together"),
    _row("A1031", "agent used up its CPU time", _COUNTS, "compute less; all processes of the agent count together"),
    _row("A1032", "agent ended by its process limit", _COUNTS, "start fewer processes and threads"),
    _row("A1033", "agent ended by its disk limit", _COUNTS, "write less; /tmp is small and the only place to write"),
    _row(
        "A1034",
        "agent used up its model budget",
        _COUNTS,
        "send shorter messages, fewer completions, or a cheaper model",
    ),
    # -- agent: requests
    _row(
        "A1040",
        "model request is malformed",
        "this call fails; the agent may go on",
        "send `model` and text `messages` only",
    ),
    _row(
        "A1041",
        "model is not on the policy's list",
        "this call fails; the agent may go on",
        "pick a model from `arena_sdk.llm.models()`",
    ),
    _row(
        "A1042",
        "prefilled assistant turn or forced tool choice refused",
        "this call fails; the agent may go on",
        "let the model choose its own tool calls",
    ),
    _row(
        "A1050",
        "tool call is malformed",
        "this call fails; the agent may go on",
        "follow the tool's schema in `arena_sdk.tools.schemas()`",
    ),
    _row("A1060", "agent ended without a recommendation", _COUNTS, "call recommend_product before terminate"),
    # -- validator
    _row("V2001", "no sandbox level holds on this host", _STOPS, "run `arena doctor` and apply the fix it prints"),
    _row("V2002", "sandbox failed to start", _NO_SCORE, "run `arena doctor`", True),
    _row(
        "V2003",
        "only the shipped reference agents may run at this sandbox level",
        _STOPS,
        "run `arena doctor`; enable namespaces or use docker",
    ),
    _row("V2004", "host loop failed", _NO_SCORE, "report the traceback in the log", True),
    _row("V2005", "episode worker died", _NO_SCORE, "the supervisor restarts it; look for memory pressure", True),
    _row(
        "V2006",
        "episode was abandoned because its lease was lost",
        _NO_SCORE,
        "nothing to do; another attempt follows",
        True,
    ),
    _row("V2010", "index is broken or truncated", _STOPS, "build it again with `arena catalogue build`"),
    _row("V2011", "index is missing", _STOPS, "build it with `arena catalogue synth` and `arena catalogue build`"),
    _row("V2012", "index cannot be written there", _STOPS, "choose an empty folder that this user may write to"),
    _row("V2013", "documents file cannot be read", _STOPS, "check the path, or make one with `arena catalogue synth`"),
    _row("V2014", "address cannot be served", _STOPS, "choose another --port, or end the process that holds this one"),
    _row("V2020", "Postgres did not start", _STOPS, "read the server log named here, then run `arena doctor`"),
    _row("V2021", "Postgres is not reachable", "work pauses and is tried again", "check the DSN and the server", True),
    _row(
        "V2022",
        "store refused the write",
        "nothing was written",
        "another process holds this hotkey's log, or a lease was lost",
        True,
    ),
    _row(
        "V2023",
        "store schema is not the one this code needs",
        _STOPS,
        "run `arena store migrate` with the owner's DSN",
    ),
    _row("V2024", "another process runs this hotkey", _STOPS, "stop the other process; one validator per hotkey"),
    _row(
        "V2025",
        "store can't hold this value",
        "the attempt is recorded as a fault and not tried again",
        "report it: a limit of the policy should have stopped the agent earlier",
    ),
    _row(
        "V2030",
        "setting is unknown or has a wrong value",
        _STOPS,
        "run `arena validator --dry-run` to see every setting and its source",
    ),
    _row("V2031", "wallet or hotkey cannot be read", _STOPS, "check --wallet.name and --wallet.hotkey"),
    _row(
        "V2040",
        "title matcher is not available",
        _NO_SCORE,
        "install the bank release that carries the accepted titles",
        True,
    ),
    _row(
        "V2050",
        "record failed verification",
        "exit code 4; the record is named",
        "keep the store as it is and compare it with the last signed checkpoint",
    ),
    _row(
        "V2060",
        "host is missing something this software needs",
        _STOPS,
        "run `arena doctor` and apply the fix it prints",
    ),
    _row("V2061", "validator process ended early", _STOPS, "read the log named here, then run `arena doctor`"),
    _row(
        "V2062",
        "this host may not race under the policy",
        _STOPS,
        "run `arena doctor`; a policy may demand a real jail and a Python version for the guest",
    ),
    _row(
        "V2063",
        "an open race runs under another policy",
        _STOPS,
        "start with `--policy` and the file named here; a new policy can begin before a race closes, or after it",
    ),
    _row(
        "V2064",
        "file of the node cannot be written",
        "no race can open; submissions still qualify",
        "make room, or give this user the path named here",
        True,
    ),
    _row(
        "V2065",
        "this hotkey holds no validator permit",
        "nothing it finds would count; the validator does not start",
        "register the hotkey and stake behind it until the subnet gives it a permit",
    ),
    _row(
        "V2066",
        "policy cannot be settled by this validator alone",
        "no race would end with a result; the validator does not start",
        "choose a policy that needs the results of one validator; records are not exchanged between validators yet",
    ),
    _row(
        "V2026",
        "no store is known in this folder",
        "nothing was read",
        "give --state-dir of a node, or of a demo run (the demo prints it)",
    ),
    _row("V2027", "a file or folder cannot be used", _STOPS, "check the path and its permissions"),
    _row(
        "V2028",
        "object store is not reachable",
        "work pauses and is tried again",
        "check its address and the net",
        True,
    ),
    _row(
        "V2029",
        "object store refuses, or its location can't be used",
        _STOPS,
        "check the URL (file:///folder or s3://bucket/prefix?endpoint=...&region=...) and AWS_* in the environment",
    ),
    _row(
        "V2051",
        "proof, or position in a log, is malformed or does not hold",
        "exit code 4; nothing is proven by it",
        "fetch the file again from who made it, and compare it with a checkpoint you hold from elsewhere",
    ),
    _row(
        "V2052",
        "verification process died",
        "exit code 3; what it had before it is not verified, and the command stops",
        "look for memory pressure, then run the command again, with `--processes 0` to stay in one process",
    ),
    _row(
        "V2053",
        "log cannot prove this",
        "nothing was written",
        "name a signed checkpoint of the log that covers the record, and for --from one that is not newer",
    ),
    _row(
        "V2056",
        "backup is damaged or incomplete",
        "nothing was restored that counts; the target is not to be used",
        "restore another backup, or make this one again",
    ),
    _row("V2057", "target already holds records", "nothing was written", "restore into an empty database or folder"),
    _row(
        "V2080",
        "log contradicts a checkpoint that was signed of it",
        "exit code 4; nothing is appended or signed on top of it",
        "keep the store as it is; compare it with the checkpoint named here: `arena records verify --checkpoint FILE`",
    ),
    _row(
        "V2081",
        "request to the live tail is malformed",
        "nothing was read",
        "correct the parameter named here; GET /openapi.json describes them all",
    ),
    _row(
        "V2082",
        "live tail does not have what was asked for",
        "nothing was read",
        "GET /v1/head lists the logs and where each ends",
    ),
    _row(
        "V2083",
        "live tail serves as many clients as it may",
        "nothing was read; the client comes back later",
        "wait, or raise `serve_clients`",
        True,
    ),
    _row(
        "V2084",
        "live tail is away, or answers something else",
        "nothing was read; a client that follows comes back",
        "check the address, and that `serve_port` is set there",
        True,
    ),
    _row(
        "V2070",
        "folder holds another export, or one being written",
        "nothing was written",
        "choose an empty --out, or repeat the command that began the export there",
    ),
    _row(
        "V2071",
        "no signed checkpoint covers the records to export",
        "nothing was written",
        "let the validator sign a checkpoint; one is signed on its schedule",
    ),
    _row(
        "V2072",
        "earlier export cannot be continued",
        "nothing was written",
        "give the folder of a finished export of the same validator, pools and filters",
    ),
    _row("V2073", "export request is wrong", "nothing was written", "read `arena records export --help`"),
    _row(
        "V2074",
        "manifest of an export cannot be read",
        "exit code 4; nothing of the export is trusted",
        "fetch the export again from who made it",
    ),
    _row(
        "V2085",
        "sealed batch cannot be read before its round",
        "nothing was read; nobody can open it earlier",
        "wait for the moment named here",
        True,
    ),
    _row(
        "V2086",
        "pictures need matplotlib",
        "no picture is drawn; the table needs nothing",
        "pip install 'agent-arena[plots]'",
    ),
    # -- upstream
    _row(
        "U3001",
        "model endpoint is missing or refuses the key",
        _NO_SCORE,
        "set OPENAI_BASE_URL and OPENAI_API_KEY",
        True,
    ),
    _row(
        "U3002",
        "model endpoint failed after retries",
        _NO_SCORE,
        "wait; the episode restarts when the endpoint answers a probe",
        True,
    ),
    _row(
        "U3003",
        "model endpoint answered with something unreadable",
        _NO_SCORE,
        "check that the endpoint speaks the OpenAI protocol",
        True,
    ),
    _row(
        "U3004",
        "model endpoint refuses more requests for now",
        _NO_SCORE,
        "lower the number of workers or raise the endpoint's rate limit",
        True,
    ),
    _row(
        "U3005",
        "model endpoint does not serve a model of the policy",
        _STOPS,
        "serve it there, add an endpoint that does, or set `models` (which changes the policy's hash)",
    ),
    _row("U3010", "catalogue lookup failed", _NO_SCORE, "check the catalogue service", True),
    _row(
        "U3020",
        "judge endpoint failed after retries",
        "the verdict is owed; the stored body is judged later",
        "check the judge endpoint",
        True,
    ),
    _row(
        "U3021",
        "judge gave no usable verdict",
        "the trajectory stays unscored until it is judged again",
        "read the refused replies with `arena records show`",
        True,
    ),
    _row("U3030", "chain is not reachable", "work pauses and is tried again", "check the chain endpoint", True),
    _row(
        "U3031",
        "chain refused the extrinsic",
        "nothing was set; tried again within the rate limit",
        "read the chain's error in the result row",
        True,
    ),
    _row("U3032", "beacon round is not available", "the draw waits", "wait for the round; it is public", True),
    # -- problem or catalogue
    _row("P4001", "problem file is not readable JSON", _STOPS, "fix the line and field named"),
    _row("P4002", "problem has an unknown bucket", _WITHDRAWN, "use product, shop or voucher"),
    _row("P4003", "problem has a malformed reward", _WITHDRAWN, "fix the field named"),
    _row("P4004", "problem has a malformed voucher", _WITHDRAWN, "fix the field named"),
    _row("P4005", "product document is malformed", _WITHDRAWN, "fix the document named and build the catalogue again"),
    _row("P4006", "answer product is not in the catalogue", _WITHDRAWN, "use problems made for this catalogue"),
    _row("P4007", "two problems have the same id", _STOPS, "give each problem its own id"),
    _row(
        "P4008",
        "web problems cannot be scored by rule",
        _STOPS,
        "leave the web rows out; use product, shop and voucher problems",
    ),
    _row("P4009", "problem record has no usable id or query", _STOPS, "fix the line and field named"),
    _row(
        "P4010",
        "sealed batch does not match its hash",
        "exit code 4; the batch is not used",
        "restore the batch file from the copy the hash was made from",
    ),
    _row(
        "P4011",
        "catalogue cannot yield the problems asked for",
        _STOPS,
        "ask for fewer problems or use a larger catalogue",
    ),
    _row("P4012", "title release is malformed", _STOPS, "build the release again for this bank"),
    _row(
        "P4014",
        "bank has no batch left",
        "no race can open; submissions still qualify",
        "add problems to the bank's stock",
        True,
    ),
    _row(
        "P4015",
        "problem file holds too few problems for the policy",
        "nothing is drawn from it; submissions still qualify",
        "add problems to the file named here, or take it away",
        True,
    ),
    _row(
        "P4025",
        "sealed batch file is not the bank's",
        "exit code 4; the batch is not used",
        "get the file again from the operator, and compare `bank_hotkey` with the operator's key",
    ),
    _row(
        "P4026",
        "beacon signature does not open this sealed batch",
        "nothing was read",
        "use the signature of the round that the file names",
    ),
    _row(
        "P4027",
        "bank holds no sealed batch for this round",
        "no race can open for this close; submissions still qualify",
        "ask the operator for the batch of the round named here, and put it into the bank's folder",
        True,
    ),
    _row(
        "P4028",
        "partition manifest is not what its hash and signature say",
        "exit code 4; nothing is assigned by it",
        "restore the manifest from the copy that was frozen, and compare its hash with the one in batches",
    ),
    _row(
        "P4029",
        "problem may not be raced",
        "the batch is not used",
        "leave out what the detail names: a problem that was raced before, or one that is never to be",
    ),
    # -- problem: clusters and pools
    _row(
        "P4020",
        "problem joins two frozen pools",
        "the problem enters no pool; the pools stay as they are",
        "leave it out of the bank: its answers would give away problems of the pools named",
    ),
    _row(
        "P4021",
        "partition manifest is not sound",
        "it is not used; no problem changes its pool",
        "fetch the manifest again from the bank's operator and check its signature",
    ),
    _row(
        "P4022",
        "bank is too small for the pools asked for",
        _STOPS,
        "add problems of the buckets named, or ask for smaller pools",
    ),
    _row(
        "P4023",
        "partition key does not belong to this manifest",
        _STOPS,
        "use the 32-byte key that the manifest was frozen with",
    ),
    _row(
        "P4024",
        "opening does not match the partition manifest",
        "nothing is proved about the problem's pool",
        "fetch manifest and opening again from the bank's release",
    ),
    _row(
        "P4016",
        "wording loses a constraint of its problem",
        "the wording is not used",
        "say what the detail names, as it stands in the reward",
    ),
    _row(
        "P4017",
        "wording asks for something its problem does not",
        "the wording is not used",
        "take out what the detail names",
    ),
    _row(
        "P4018",
        "suite is not what its manifest and signature say",
        "exit code 4; nothing is qualified with it",
        "install the suite again, and compare its signer with the operator's key",
    ),
    _row("P4019", "too many products satisfy the problem", _WITHDRAWN, "tighten it, or leave it out"),
    _row("P4013", "problem is unsolvable, or free", _WITHDRAWN, "leave it out, or correct its reward"),
)

CODES: dict[str, ErrorCode] = {row.code: row for row in _ROWS}


def lookup(code: str) -> ErrorCode:
    """The registry's row for `code`. Raises KeyError for a code that is not registered: a bug of ours."""
    return CODES[code]
