"""P4xxx: a problem, a suite, a bank or the catalogue is at fault."""

from __future__ import annotations

from foundation.codes.row import STOPS, WITHDRAWN, row

ROWS = (
    row("P4001", "problem file is not readable JSON", STOPS, "fix the line and field named"),
    row("P4002", "problem has an unknown bucket", WITHDRAWN, "use product, shop or voucher"),
    row("P4003", "problem has a malformed reward", WITHDRAWN, "fix the field named"),
    row("P4004", "problem has a malformed voucher", WITHDRAWN, "fix the field named"),
    row("P4005", "product document is malformed", WITHDRAWN, "fix the document named and build the catalogue again"),
    row("P4006", "answer product is not in the catalogue", WITHDRAWN, "use problems made for this catalogue"),
    row("P4007", "two problems have the same id", STOPS, "give each problem its own id"),
    row(
        "P4008",
        "web problems cannot be scored by rule",
        STOPS,
        "leave the web rows out of the file; product, shop and voucher problems can be scored",
    ),
    row("P4009", "problem record has no usable id or query", STOPS, "fix the line and field named"),
    row(
        "P4010",
        "sealed batch does not match its hash",
        "exit code 4; the batch is not used",
        "restore the batch file from the copy the hash was made from",
    ),
    row(
        "P4011",
        "catalogue or bank cannot yield the problems asked for",
        STOPS,
        "ask for fewer problems or smaller pools, or use a larger catalogue",
    ),
    row("P4012", "title release is malformed", STOPS, "build the release again for this bank"),
    row(
        "P4014",
        "bank has no batch left",
        "no race can open; submissions still qualify",
        "seal batches for the coming races (`arena problems seal`)",
        True,
    ),
    row(
        "P4015",
        "problem file holds too few problems for the policy",
        "nothing is drawn from it; submissions still qualify",
        "add problems to the file named here, or take it away",
        True,
    ),
    row(
        "P4025",
        "sealed batch file is not the bank's",
        "exit code 4; the batch is not used",
        "get the file again from the operator, and compare `bank_hotkey` with the operator's key",
    ),
    row(
        "P4026",
        "beacon signature does not open this sealed batch",
        "nothing was read",
        "use the signature of the round that the file names",
    ),
    row(
        "P4027",
        "bank holds no sealed batch for this round",
        "no race can open for this close; submissions still qualify",
        "ask the operator for the batch of the round named here, and put it into the bank's folder",
        True,
    ),
    row(
        "P4028",
        "partition manifest is not what its hash and signature say",
        "exit code 4; nothing is assigned by it",
        "restore the manifest from the copy that was frozen, and compare its hash with the one in batches",
    ),
    row(
        "P4029",
        "problem may not be raced",
        "the batch is not used",
        "leave out what the detail names: a problem that was raced before, or one that is never to be",
    ),
    row(
        "P4030",
        "batch of a real network lacks its partition or its accepted titles",
        "no race can open with it; submissions still qualify",
        "seal with `--partition` and `--titles`",
        True,
    ),
    row(
        "P4032",
        "no variant of a problem of the suite could be drawn",
        WITHDRAWN,
        "qualify over a larger catalogue, or set `qualifying.variant_blocks` to 0 in the policy",
    ),
    # -- problem: clusters and pools
    row(
        "P4021",
        "partition manifest is not sound",
        "it is not used; no problem changes its pool",
        "fetch the manifest again from the bank's operator and check its signature",
    ),
    row(
        "P4023",
        "partition key does not belong to this manifest",
        STOPS,
        "use the 32-byte key that the manifest was frozen with",
    ),
    row(
        "P4016",
        "wording loses a constraint of its problem",
        "the wording is not used",
        "say what the detail names, as it stands in the reward",
    ),
    row(
        "P4017",
        "wording asks for something its problem does not",
        "the wording is not used",
        "take out what the detail names",
    ),
    row(
        "P4018",
        "suite is not what its manifest and signature say",
        "exit code 4; nothing is qualified with it",
        "install the suite again, and compare its signer with the operator's key",
    ),
    row("P4013", "problem is unsolvable, free or ambiguous", WITHDRAWN, "leave it out, or correct its reward"),
)
