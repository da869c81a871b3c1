"""`python -m tests.messages` prints the list that is kept as docs/messages.md."""

from __future__ import annotations

import sys

from tests.messages.listing import page

sys.stdout.write(page())
