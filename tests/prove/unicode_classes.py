"""Makes harness/catalogue/unicode_classes.json by asking Lucene: `python -m tests.prove.unicode_classes OUT`.

A code point is put into texts that tell the tokenizer's classes apart. It is of the class whose representative is cut
in the same way everywhere; one that fits no class stops the run, because then the grammar is not Lucene's any more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.catalogue.lucene import java_thread
from tests.harness.catalogue_stand import missing_lucene

# In the order of the file. The selectors U+FE0E and U+FE0F are what they are; "." is in no token and not written.
REPRESENTATIVES = {
    **{"A": "q", "a": "ℹ", "H": "א", "N": "1", "K": "カ", "I": "中", "C": "ะ", "c": "\u0e31"},
    **{"M": "·", "B": "．", "Q": "'", "U": '"', "P": ",", "_": "_"},
    **{"E": "🔥", "m": "\U0001f3fb", "R": "\U0001f1e6", "#": "#", "Z": "\u200d", "F": "\ufe0f", "T": "\ufe0e"},
    **{"k": "\u20e3", "t": "\U000e0061", "u": "\U000e007f", "X": "\u0301", ".": "!"},
}
FRAMES = (  # separated by |; X is the code point
    "qXq|1X1|X|カXカ|XX|אX|אXא|#X|#X\u20e3|🔥X🔥|X\U0001f3fb|🔥X|ะX|🔥\ufe0fX\U000e007f|🔥\ufe0f\U000e0061X|Xq|\u200dX"
    "|X\u200d🔥|Xカ|q·X|1,X|X'|X\ufe0eq|X\ufe0e|X\ufe0f🔥|\U0001f1e6X|X1|X·q|X,1|X\u20e3|🔥X\u0301"
)
POINTS = ((0x1, 0xD800), (0xE000, 0x32400), (0xE0000, 0xE1000))  # beyond, nothing is assigned
BATCH = 400
END = "zzqz"
CELLS = 8  # ranges on a line

Signature = tuple[tuple[int, ...], ...]  # of every frame, the lengths of its tokens


def signatures(letters: list[str], tokens: Callable[[str], list[str]]) -> list[Signature]:
    """How each letter is cut in every frame."""
    frames = FRAMES.split("|")
    found: list[tuple[int, ...]] = []
    lengths: list[int] = []
    for token in tokens("".join(f"{frame.replace('X', letter)}\n{END}\n" for letter in letters for frame in frames)):
        if token == END:
            found.append(tuple(lengths))
            lengths = []
        else:
            lengths.append(len(token))
    return [tuple(found[start : start + len(frames)]) for start in range(0, len(found), len(frames))]


def classify(tokens: Callable[[str], list[str]]) -> Iterator[tuple[int, str]]:
    """Code points in order with their classes."""
    names = list(REPRESENTATIVES)
    known = dict(zip(signatures(list(REPRESENTATIVES.values()), tokens), names, strict=True))
    if len(known) != len(names):
        raise SystemExit("two classes are cut alike: the frames do not tell them apart")
    for low, high in POINTS:
        for start in range(low, high, BATCH):
            letters = [chr(point) for point in range(start, min(high, start + BATCH))]
            for letter, signature in zip(letters, signatures(letters, tokens), strict=True):
                if letter in END:  # would be taken for the separator
                    yield ord(letter), "A"
                elif signature in known:
                    yield ord(letter), known[signature]
                else:
                    raise SystemExit(f"U+{ord(letter):04X} is of no class")


def table(classes: Iterator[tuple[int, str]]) -> str:
    """The file: inclusive ranges of every class."""
    ranges: dict[str, list[list[int]]] = {name: [] for name in REPRESENTATIVES if name != "."}
    for point, name in classes:
        if name != "." and ranges[name] and ranges[name][-1][1] == point - 1:
            ranges[name][-1][1] = point
        elif name != ".":
            ranges[name].append([point, point])
    parts = []
    for name, spans in ranges.items():
        cells = [f"[{low},{high}]" for low, high in spans]
        lines = [", ".join(cells[start : start + CELLS]) for start in range(0, len(cells), CELLS)]
        body = ",\n   ".join(lines)
        parts.append(f'  "{name}": [\n   {body}\n  ]' if len(lines) > 1 else f'  "{name}": [{body}]')
    about = "Lucene 9.9.1 (Anserini 1.7.1), asked code point by code point: python -m tests.prove.unicode_classes OUT"
    return f'{{\n "made_from": {json.dumps(about)},\n "classes": {{\n' + ",\n".join(parts) + "\n }\n}\n"


def lucene_tokens() -> Callable[[str], list[str]]:
    """Lucene's tokens in lower case: neither stems nor English stop words."""
    call = java_thread()

    def start() -> Callable[[str], list[str]]:
        import jnius

        analyzer = jnius.autoclass("org.apache.lucene.analysis.standard.StandardAnalyzer")()
        analyze = jnius.autoclass("io.anserini.analysis.AnalyzerUtils").analyze
        return lambda text: list(analyze(analyzer, text).toArray())

    tokens: Callable[[str], list[str]] = call(start)
    return lambda text: call(tokens, text)


if __name__ == "__main__":
    if reason := missing_lucene():
        raise SystemExit(reason)
    Path(sys.argv[1]).write_text(table(classify(lucene_tokens())), "utf-8")
