"""How varied a distribution is: an integer that comes out the same on every machine.

The entropy is computed in decimals of fixed precision and rounded half to even.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_HALF_EVEN, Context, Decimal

_CONTEXT = Context(prec=40, rounding=ROUND_HALF_EVEN)


def entropy_mbit(counts: list[int]) -> int:
    """Shannon entropy of a distribution given as counts above 0, in thousandths of a bit; 0 for none or one."""
    if len(counts) < 2:
        return 0
    total = Decimal(sum(counts))
    weighted = Decimal(0)
    for count, times in sorted(Counter(counts).items()):
        value = Decimal(count)
        weighted = _CONTEXT.add(weighted, _CONTEXT.multiply(value * times, _CONTEXT.ln(value)))
    nats = _CONTEXT.subtract(_CONTEXT.ln(total), _CONTEXT.divide(weighted, total))
    bits = _CONTEXT.divide(nats, _CONTEXT.ln(Decimal(2)))
    return int(_CONTEXT.multiply(bits, Decimal(1000)).to_integral_value(rounding=ROUND_HALF_EVEN))
