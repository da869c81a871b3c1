"""Every message and help text of the product in one list: `python -m tests.messages > docs/messages.md`."""
