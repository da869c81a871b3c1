"""The fourth schema: submissions that came over HTTP, and the signed requests that were let through."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables and their functions; no row of what stands changes."""
    run_script(op.get_bind(), "0004_door.sql")
