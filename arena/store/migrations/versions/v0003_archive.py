"""Contents of old records in an archive."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let a record's content lie in the object store, and add the function that moves a day."""
    run_script(op.get_bind(), "archive.sql")
