"""The measures of this project's shape: `python -m tests.structure`. What each counts: docs/structure.md."""
