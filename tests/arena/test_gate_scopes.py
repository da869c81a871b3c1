"""Routes to refused objects by the rules of scopes, and by what standard functions hand out: each gets a finding."""

from __future__ import annotations

import pytest

from tests.arena.gate_stand import gate

ROUTES = {
    "a class body sees past its function's parameter": (
        "def f(eval=None):\n    class C:\n        first = eval\n        if first is None:\n"
        "            eval = 1\n    return C\n"
    ),
    "a class body declares a global": (
        "def f(exec=None):\n    class C:\n        global exec\n        first = exec\n    return C\n"
    ),
    "a redirector's own targets": "import contextlib\nclass R(contextlib.redirect_stdout):\n    _stream = 'modules'\n",
    "an attribute chosen for a wrapper": "import functools\nfunctools.update_wrapper(1, 2, assigned=('x',))\n",
    "wraps of a chosen attribute": "import functools\nw = functools.wraps(1, assigned=('x',))\n",
    "wraps as a value": "import functools\nw = functools.wraps\n",
    "a signature's own constructor": "import inspect\ns = inspect.signature(str).from_callable\n",
    "basicConfig as a value": "import logging\nconfigure = logging.basicConfig\n",
    "a field named like a module": "class M:\n    sys: object\n",
    "the module behind warnings": "import warnings\nm = warnings.catch_warnings()._module\n",
    "the file under a stream": "def f(stream):\n    return stream.detach()\n",
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_gets_a_finding(route: str) -> None:
    assert gate(ROUTES[route]).outcome != "accept"


def test_a_plain_wrapper_is_fine() -> None:
    source = (
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
    )
    assert gate(source).outcome == "accept"
