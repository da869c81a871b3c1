"""The funnel report in its three forms (lines, JSON, page), and the sheet for people to check a corpus blind."""
