"""A1xxx: the agent, its file or its submission is at fault."""

from __future__ import annotations

from foundation.codes.row import COUNTS, REJECTED, STOPS, row

ROWS = (
    # -- agent: the file
    row("A1001", "agent file is not UTF-8", REJECTED, "save the file as UTF-8 without an encoding cookie"),
    row("A1002", "agent file does not parse", REJECTED, "run `python -m py_compile AGENT.py` with the guest's Python"),
    row(
        "A1003",
        "agent file has no agent_main(problem)",
        REJECTED,
        "define `def agent_main(problem: dict)` at module level",
    ),
    row("A1004", "agent file is too large", REJECTED, "keep the one file within the size the policy names"),
    row(
        "A1005",
        "gate rejected the agent",
        REJECTED,
        "change the line that the finding names",
    ),
    row("A1006", "cooldown has not passed", REJECTED, "wait for the block named, then submit again"),
    row(
        "A1007",
        "submission signature or commitment does not match",
        REJECTED,
        "sign with the hotkey that made the commitment",
    ),
    row("A1008", "hotkey is not registered on the subnet", REJECTED, "register the hotkey, then submit again"),
    row("A1009", "agent file cannot be read", STOPS, "check the path and its permissions"),
    row("A1010", "agent name is malformed", REJECTED, "use 1 to 64 letters, digits, dots, dashes or underscores"),
    row(
        "A1011",
        "agent is a copy",
        REJECTED,
        "another hotkey committed this program earlier; submit your own work",
    ),
    row(
        "A1012",
        "another submission of this hotkey is being decided",
        "this one is not taken; the other goes on",
        "watch it with `arena status`, or take it back with `arena withdraw`",
    ),
    row(
        "A1013",
        "submission no longer waits for the gate",
        "it is not withdrawn",
        "submit another version: of a hotkey's versions the one that qualified best races",
    ),
    # -- agent: the run
    row("A1020", "agent ran out of wall-clock time", COUNTS, "lower the number of steps or stop at the first match"),
    row("A1021", "agent used up its steps", COUNTS, "recommend earlier; a step is one model completion"),
    row("A1022", "agent used up its tool calls", COUNTS, "make fewer tool calls"),
    row("A1023", "agent used up its tokens", COUNTS, "send shorter messages or fewer completions"),
    row("A1024", "agent raised an exception", COUNTS, "read the traceback of the attempt and change the line it names"),
    row("A1025", "agent returned something that is not JSON", COUNTS, "return None, or a plain dict or list"),
    row("A1026", "agent flooded its output", COUNTS, "print less; stdout and stderr are capped"),
    row("A1027", "agent broke the RPC protocol", COUNTS, "use `arena_sdk`; never write to descriptors 0 and 1"),
    row("A1028", "agent process died", COUNTS, "look for a crash, os._exit or memory over the limit"),
    row("A1029", "agent sent a frame over the limit", COUNTS, "send smaller tool arguments and messages"),
    row("A1030", "agent exceeded its memory", COUNTS, "use less memory; all processes of the agent count together"),
    row("A1031", "agent used up its CPU time", COUNTS, "compute less; all processes of the agent count together"),
    row("A1032", "agent ended by its process limit", COUNTS, "start fewer processes and threads"),
    row("A1033", "agent ended by its disk limit", COUNTS, "write less; /tmp is small and the only place to write"),
    row(
        "A1034",
        "agent used up its model budget",
        COUNTS,
        "send shorter messages, fewer completions, or a cheaper model",
    ),
    row("A1035", "agent sent something that cannot be read", COUNTS, "send plain JSON; nest it a few levels deep"),
    row(
        "A1036",
        "agent filled its record",
        COUNTS,
        "ask for fewer products at a time and send shorter messages; results, trace and record have a limit each",
    ),
    row(
        "A1038",
        "agent used up the host's work",
        COUNTS,
        "search less often and with fewer words; leave out what need not be sent (harness/WORK.md)",
    ),
    # -- agent: requests
    row(
        "A1040",
        "model request is malformed",
        "this call fails; the agent may go on",
        "send `model` and text `messages` only",
    ),
    row(
        "A1041",
        "model is not on the policy's list",
        "this call fails; the agent may go on",
        "pick a model from `arena_sdk.llm.models()`",
    ),
    row(
        "A1042",
        "prefilled assistant turn or forced tool choice refused",
        "this call fails; the agent may go on",
        "let the model choose its own tool calls",
    ),
    row(
        "A1043",
        "model endpoints refuse this request and answer a neutral one of its shape",
        "this call fails and the agent may go on; at the last attempt the policy allows, the problem counts as failed",
        "leave out what a provider refuses, such as words that its moderation blocks",
    ),
    row(
        "A1044",
        "restarted agent did not ask again what it had been answered",
        COUNTS,
        "let requests follow from the problem and the replies alone: no clock and no random numbers",
    ),
    row(
        "A1050",
        "tool call is malformed",
        "this call fails; the agent may go on",
        "follow the tool's schema in `arena_sdk.tools.schemas()`",
    ),
    row("A1060", "agent ended without a recommendation", COUNTS, "call recommend_product before terminate"),
)
