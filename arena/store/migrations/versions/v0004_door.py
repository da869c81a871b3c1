"""The fourth schema: submissions that came over HTTP, signed requests that were let through, and what models cost."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add three tables and their functions; no row of what stands changes."""
    for name in ("0004_door.sql", "0004_usage.sql"):
        run_script(op.get_bind(), name)
