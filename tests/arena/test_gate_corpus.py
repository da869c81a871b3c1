"""Honest code at hand against the data rules: regular expressions, prompts and numbers of real files are no payload."""

from __future__ import annotations

import base64
import random
import struct
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from arena.gate.inspection import inspect
from arena.gate.knowledge import GateKnowledge, make_knowledge
from tests.arena.gate_stand import IDS, RULES, gate, rules_met

DATA_RULES = frozenset(
    {"id-table", "id-hits", "benchmark-text", "entropy", "binary", "integer-array", "big-integer", "unsearched"}
)
FILES = 60  # of which every fourth is read in each run of the tests, all by `make prove`
# Tables of the standard library that are data indeed; a person may look at them.
TABLE_FILES = frozenset({"base64.py", "stringprep.py", "zipimport.py"})


@cache
def _files() -> tuple[Path, ...]:
    """Real single files of at least 400 lines, a fixed choice of what the standard library holds."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = [
        path
        for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")])
        if not {"test", "tests", "encodings", "site-packages", "lib2to3", "pydoc_data"} & set(path.parts)
        and 400 <= path.read_text(encoding="utf-8", errors="replace").count("\n") < 2_500
    ]
    return tuple(random.Random(5).sample(found, min(FILES, len(found))))


@cache
def _dense() -> GateKnowledge:
    """A catalogue so dense that chance finds an id in every five thousandth number of nine digits."""
    rnd = random.Random(6)
    return make_knowledge((str(number) for number in rnd.sample(range(10**8, 10**9), 180_000)), [], [], RULES)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.prove)])
def test_real_files_have_no_data_finding(every: int) -> None:
    files = _files()[::every]
    met = {path.name: rules_met(inspect(path.read_bytes(), RULES, _dense())) & DATA_RULES for path in files}
    assert len(met) >= 40 // every
    assert {name: rules for name, rules in met.items() if rules and name not in TABLE_FILES} == {}


HONEST_TEXTS = {
    "list of alternatives": r"(?:,?\s*and\s+also\s+|,?\s*also,?\s+|Second(?:ly)?,\s*|Third(?:ly)?,\s*|First,\s*|"
    r"\(\d+\)\s*|In\s+addition,?\s*)",
    "address": r"^(?P<bucket>arn:(aws).*:s3-outposts:[a-z\-0-9]+:[0-9]{12}:outpost[/:][a-zA-Z0-9\-]{1,"
    r"63}[/:](bucket|accesspoint))$",
    "ip addresses": r"^s*((([0-9A-Fa-f]{1,4}:){7}([0-9A-Fa-f]{1,4}|:))|"
    r"(([0-9A-Fa-f]{1,4}:){6}(:[0-9A-Fa-f]{1,4}|((25[0-5]|2[0-4])",
    "prices": r"(?:(?:under|below|<=?|at\s+most)\s*(?:PHP|P|₱)?\s*(?P<max>[0-9]{1,3}(?:,[0-9]{3})*(?:\.[0-9]{1,2})?))",
    "prompt with packed JSON": '{"products":[{"query":"query","brand":"brand"|null,"price_range":"min-max"|'
    '"min-"|"0-max"|'
    "null,"
    '"service":"official"|"freeShipping"|"COD"|"flashsale"|null,"only_product_type":bool}],"intent":"single"|"shop"}',
    "path of a class": "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VLVisionAttention.forward."
    "Wrapper.Inner2",
    "schema": '{"type":"function","function":{"name":"find_product","parameters":{"type":"object",'
    '"properties":{"q":{"type":"string"}}}}}',
    "long address": "https://example.org/api/v2/products?sort=priceasc&page=1&filters=brand:Sony,"
    "size:XL&lang=en-US&ref=a1B2c3D4",
}


@pytest.mark.parametrize("kind", HONEST_TEXTS)
def test_a_regular_expression_or_a_prompt_is_no_payload(kind: str) -> None:
    assert gate(f"T = {HONEST_TEXTS[kind]!r}").findings == ()


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.b85encode, base64.a85encode])
@pytest.mark.parametrize("size", [64, 90, 400, 3_000])
def test_packed_data_is_looked_at(encode: object, size: int) -> None:
    assert callable(encode)
    packed = [encode(random.Random(seed).randbytes(size)).decode() for seed in range(30)]
    assert sum("entropy" in rules_met(gate(f"T = {text!r}")) for text in packed) >= 29


@pytest.mark.parametrize("form", ["<q", ">I", "<d", ">Q"])
@pytest.mark.parametrize("spell", [repr, lambda packed: repr(packed.decode("latin-1"))], ids=["bytes", "text"])
def test_numbers_packed_into_bytes_are_looked_at(form: str, spell: Callable[[bytes], str]) -> None:
    packed = b"".join(struct.pack(form, int(number)) for number in IDS[100:120])
    for read in ("struct.unpack('<q', T[:8])", "int.from_bytes(T[:8], 'little')"):
        assert rules_met(gate(f"import struct\nT = {spell(packed)}\nX = {read}")) == {"binary"}


def test_packed_data_between_ordinary_text_is_looked_at() -> None:
    packed = base64.b64encode(random.Random(1).randbytes(90)).decode()
    assert "entropy" in rules_met(gate(f"T = {HONEST_TEXTS['schema'] + packed + HONEST_TEXTS['prices']!r}"))
    assert "entropy" in rules_met(gate(f"T = {'data://' + packed!r}"))
