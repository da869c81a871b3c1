"""The judge: how well a recorded trace reasons, with verbatim citations, blind to the outcome. See README.md."""
