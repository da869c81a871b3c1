"""The second schema: bodies may live in an object store, verdicts are found by their body, checkpoints and anchors."""

from __future__ import annotations

from alembic import op

from arena.store.schema import run_script

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add to the first schema; no row of it changes."""
    for name in ("0002_bodies.sql", "0002_append.sql", "0002_checkpoints.sql"):
        run_script(op.get_bind(), name)
