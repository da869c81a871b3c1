"""The fourth schema: what model endpoints were asked for, and what that cost."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; no row of the others changes."""
    run_script(op.get_bind(), "0004_usage.sql")
