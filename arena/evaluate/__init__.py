"""The one path from an agent and a problem to an evaluation."""

from arena.evaluate.evaluation import (
    EpisodeCost,
    EvaluatePorts,
    Evaluation,
    RanEpisode,
    evaluate,
    run,
    score_body,
    settle,
)

__all__ = [
    "EpisodeCost",
    "EvaluatePorts",
    "Evaluation",
    "RanEpisode",
    "evaluate",
    "run",
    "score_body",
    "settle",
]
