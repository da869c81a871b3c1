"""The one path from an agent and a problem to an evaluation."""

from arena.evaluate.evaluation import evaluate, require_own, run, score_body, settle
from arena.evaluate.model import EpisodeCost, Evaluation, RanEpisode
from arena.evaluate.ports import EvaluatePorts

__all__ = [
    "EpisodeCost",
    "EvaluatePorts",
    "Evaluation",
    "RanEpisode",
    "evaluate",
    "require_own",
    "run",
    "score_body",
    "settle",
]
