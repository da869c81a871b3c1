"""One module per revision; each runs SQL files of its own number and is never edited after release."""
