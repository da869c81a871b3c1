"""Settings that are tables of the settings file: several model endpoints."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.inference.ledger import UpstreamPrice


class UpstreamSettings(BaseModel):
    """One entry of `[[upstreams]]` in the settings file: a model endpoint, what it serves and what it charges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, pattern=r"^[a-z0-9_-]+$")
    base_url: str = Field(pattern=r"^https?://")
    api_key_env: str = ""  # the environment variable that holds its key
    models: tuple[str, ...] = ()  # it is asked for these alone; empty: for every model that no other entry names
    requests_at_once: int = Field(default=0, ge=0)  # of all workers together; 0: not bounded
    prompt_micro_usd: int | None = Field(default=None, ge=0)  # per million tokens; None: not known
    completion_micro_usd: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def require_both_prices(self) -> UpstreamSettings:
        """A price of one kind of token alone would be a wrong one."""
        if (self.prompt_micro_usd is None) != (self.completion_micro_usd is None):
            raise ValueError("one price is set: set both, of prompt and completion tokens, or none")
        return self

    @property
    def price(self) -> UpstreamPrice | None:
        """What it charges, or None where that is not known."""
        if self.prompt_micro_usd is None or self.completion_micro_usd is None:
            return None
        return UpstreamPrice(prompt_micro_usd=self.prompt_micro_usd, completion_micro_usd=self.completion_micro_usd)

    def __str__(self) -> str:
        return f"{self.name} ({self.base_url}{': ' if self.models else ''}{', '.join(self.models)})"
