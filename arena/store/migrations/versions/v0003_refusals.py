"""The third schema: attempts that ended by a refused request are counted apart from this validator's own faults."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a counter to items and leases; what was counted stays counted as it was."""
    run_script(op.get_bind(), "0003_refusals.sql")
