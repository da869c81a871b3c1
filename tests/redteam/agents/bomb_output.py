"""Prints without end, in a child that nobody reads."""

from __future__ import annotations

import json
import subprocess
import sys

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    program = "import sys\nfor _ in range(int(sys.argv[1])): sys.stderr.write('x' * 10000)"
    subprocess.run([sys.executable, "-c", program, str(json.loads(problem["query"])["amount"])])
    tools.find_product(q="reached")
