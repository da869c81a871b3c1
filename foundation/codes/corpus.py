"""V2095-V2099, V2147-V2149: reading trajectories for a corpus, and building one."""

from __future__ import annotations

from foundation.codes.row import row

ROWS = (
    row(
        "V2095",
        "export does not verify",
        "exit code 4; nothing of it is read",
        "`arena records verify --export FOLDER` lists what is wrong; fetch the export again from who made it",
    ),
    row(
        "V2096",
        "nobody vouches for this export",
        "exit code 4; nothing of it is read",
        "take one signed by its validator, or repeat with --trust-unsigned: the lineage then says so",
    ),
    row(
        "V2097",
        "row cannot be converted",
        "the row is quarantined: counted, named and kept out",
        "look at the named place; a row is never repaired by guessing",
    ),
    row(
        "V2099",
        "held-out problem among training rows",
        "exit code 4; nothing is written",
        "run the leak guard on every source before it is joined; the places are named here",
    ),
    row(
        "V2147",
        "no trace passed the filter",
        "exit code 1; no corpus is written",
        "read the funnel above: the code that removed most is the one to look at",
    ),
    row(
        "V2148",
        "models would cost more than allowed",
        "nothing more is asked; answers already paid for stay and are used again",
        "`arena corpus trac --dry-run` shows calls, tokens and price; raise --price-max, or give --rows",
    ),
    row(
        "V2149",
        "thoughts of a rewritten run do not stand",
        "the run is quarantined: counted, named and kept out; a file that can't be read stops the command",
        "give the folder of `arena corpus rewrite` over these exports, unchanged, or rewrite again",
    ),
)
