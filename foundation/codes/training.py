"""V212x, V216x: a training run, its recipe, tokenizer or rows are at fault."""

from __future__ import annotations

from foundation.codes.row import STOPS, row

ROWS = (
    row(
        "V2120",
        "recipe, or rules of the filter, can't be read",
        STOPS,
        "correct the key or value named here; training/recipes/ and training/corpus/README.md have examples",
    ),
    row("V2121", "tokenizer can't be used", STOPS, "use the folder of a Qwen3 tokenizer with its own chat template"),
    row(
        "V2123",
        "guard ended the training run",
        "the checkpoint so far is kept and says so",
        "read the guard's detail, mend its cause, then run the stage again",
    ),
    row(
        "V2124",
        "training run's folder or model can't be used",
        STOPS,
        "see the detail; another recipe needs another folder",
    ),
    row(
        "V2165",
        "nothing says which problems are held out",
        STOPS,
        "name them with --held-out (evaluation sets, suites s1 to s3), or give the bank's private --partition",
    ),
    row(
        "V2166",
        "lineage of a checkpoint does not hold",
        STOPS,
        "put back what was changed, or train again from what is there now, in a new folder",
    ),
)
