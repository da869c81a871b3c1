"""V2095-V2099: reading trajectories for a corpus."""

from __future__ import annotations

from problems.codes.row import row

ROWS = (
    row(
        "V2095",
        "export does not verify",
        "exit code 4; nothing of it is read",
        "`arena records verify FOLDER` lists what is wrong; fetch the export again from who made it",
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
        "V2098",
        "format of a row is not known",
        "the row is quarantined; a file without any known row is refused",
        "the formats are in training/corpus/README.md, section 'Reader and converters'",
    ),
    row(
        "V2099",
        "held-out problem among training rows",
        "exit code 4; nothing is written",
        "run the leak guard on every source before it is joined; the places are named here",
    ),
)
