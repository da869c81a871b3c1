"""V22xx: a request at the door, where miners submit, is refused; what serves it has ended."""

from __future__ import annotations

from foundation.codes.row import row

ROWS = (
    row(
        "V2200",
        "validator takes no submissions at present",
        "nothing was taken; commitments keep their place",
        "submit to another validator, or here again later; nothing has to be committed again",
        True,
    ),
    row(
        "V2201",
        "validator has no fresh view of the chain",
        "nothing was taken, since nobody's registration can be checked",
        "submit to another validator, or here again in a minute",
        True,
    ),
    row("V2202", "request is too large", "nothing was taken", "send one agent file within the policy's size"),
    row("V2203", "request came in too slowly", "nothing was taken", "send it again over a faster line", True),
    row(
        "V2206",
        "a process of the node ended",
        "nothing that was taken in is lost; a serving process is started again, and races go on",
        "read why in the log; where it goes on, run `arena doctor`",
        True,
    ),
)
