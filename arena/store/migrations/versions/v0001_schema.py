"""The first schema: log, working state, functions and rights."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything."""
    run_script(op.get_bind(), "schema.sql")
