"""The queue by owners: charged worker time, and what an agent used."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and replace the functions of the queue."""
    run_script(op.get_bind(), "queue.sql")
