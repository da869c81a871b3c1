"""The store's schema, as Alembic revisions whose steps are plain SQL files under `sql/`."""
