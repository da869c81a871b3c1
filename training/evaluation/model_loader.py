"""A model folder opened for evaluation: weights, tokenizer, and what of the set it may have been trained on.

A finished run is opened with the adapters of all its stages, and only after its lineage was held against the
set. A plain model folder is a base, of whose training nothing is known. Where a server samples, the folder still names
the model and no weights are opened; the report says that the server's weights were not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from problems.model import Problem
from training.evaluation.contamination import learnt_by, require_unseen
from training.model import ChatCodec, Sampler
from training.models.model_folder import require_candidate
from training.models.opening import open_model, open_run, placed
from training.models.render import Qwen3Codec
from training.samplers.in_process import LocalSampler
from training.samplers.vllm import VllmSampler
from training.stages.engine import quiet_engine
from training.stages.run import LINEAGE, open_checkpoint, weights_sha256

UNKNOWN = "nothing is known of its training"


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Who is examined. `version` is a run's lineage, or the hash of a base model's weights; `weights_sha256` is of the
    weights that sample, "" where a server does not tell."""

    sampler: Sampler
    codec: Qwen3Codec
    version: str
    weights_sha256: str
    contamination: str


def open_candidate(
    folder: Path,
    problems: Sequence[Problem],
    *,
    tokenizer: Path | None = None,
    sample_rows: int = 1,
    open_sampler: Callable[[ChatCodec], VllmSampler] | None = None,
) -> LoadedModel:
    """The model in `folder`, on the GPU in bf16 where there is one, or behind `open_sampler`.

    Raises GuardStopError when it was trained on one of `problems`, ArenaError V2121 or V2124 for a folder that can't be
    opened, V2166 for a run whose lineage does not hold.
    """
    require_candidate(str(folder))
    is_run, words, contamination = (folder / LINEAGE).exists(), folder, UNKNOWN
    if is_run:
        checkpoint, lineage = open_checkpoint(folder)
        learnt = learnt_by(folder)
        require_unseen(problems, learnt)
        words, version, contamination = Path(checkpoint.folder), checkpoint.lineage_sha256, learnt.describe()
        weights = lineage.weights_sha256
    else:
        version = weights = weights_sha256(folder)
    codec = Qwen3Codec(tokenizer or words)
    if open_sampler is not None:
        sampler = open_sampler(codec)
        served = sampler.served_weights()
        contamination += f"; sampled by {sampler.version} at a server: {_said_of(served, weights)}"
        return LoadedModel(
            sampler=sampler, codec=codec, version=version, weights_sha256=served, contamination=contamination
        )
    quiet_engine()
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = open_run(folder, dtype) if is_run else open_model(str(folder), dtype)
    local = LocalSampler(
        placed(model),
        stop_id=codec.stop_id,
        suppressed_ids=codec.template_only_ids,
        version=version,
        batch_rows=sample_rows,
    )
    return LoadedModel(sampler=local, codec=codec, version=version, weights_sha256=weights, contamination=contamination)


def _said_of(served: str, own: str) -> str:
    """What is known of a server's weights, beside the folder's own; merged adapters have another hash."""
    if not served:
        return "that it holds these weights was not checked"
    if served == own:
        return "it was asked, and holds these weights"
    return f"it was asked, and holds weights {served[:16]}: are they these, merged?"
