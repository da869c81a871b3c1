"""The one path from an agent and a problem to an evaluation."""

from arena.evaluate.evaluation import evaluate, score_body
from arena.evaluate.model import EpisodeCost, Evaluation
from arena.evaluate.ports import EvaluatePorts

__all__ = ["EpisodeCost", "EvaluatePorts", "Evaluation", "evaluate", "score_body"]
