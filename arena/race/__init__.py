"""The race: pure functions from agreed values to a settlement, and the state machine that says what is due."""
