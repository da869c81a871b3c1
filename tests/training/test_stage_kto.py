"""KTO: only what the assistant wrote is scored, the KL rows' masks stay with their ids, and the guards end a run."""

from __future__ import annotations

from pathlib import Path

from tests.training.stage_runs import die_in_kto, labelled, lines_of, require_killed, run_kto
from training.models.render import Qwen3Codec


def emissions(run: Path) -> list[tuple[float, float]]:
    return [(line["step"], line["emission_rate"]) for line in lines_of(run) if "emission_rate" in line]


def test_masks_of_policy_and_kl_rows_mark_the_turns_of_their_own_ids(model: Path) -> None:
    """The engine's own mask marks tool results too; ours travels with the ids it was made for."""
    from training.stages import kto

    codec = Qwen3Codec(model)
    rows = kto._dataset(labelled(codec, 4), 2)
    collate = kto._MaskedCollator(pad_token_id=codec.tokenizer.pad_token_id, max_length=1_000)
    first = collate.torch_call([rows[0], rows[1]])
    for prefix, wanted in (("", [0, 1]), ("KL_", [1, 0])):
        for place, source in enumerate(wanted):
            mask = first[f"{prefix}completion_mask"][place].bool()
            learnt = first[f"{prefix}input_ids" if f"{prefix}input_ids" in first else f"{prefix}completion_input_ids"]
            text = codec.decode(learnt[place][mask].tolist())
            answer = codec.decode(
                [t for t, bit in zip(rows[source]["completion_ids"], rows[source][kto.MASK], strict=True) if bit]
            )
            assert text == answer
            assert "tool_response" not in text and text.count("<|im_end|>") == 2


def test_a_resumed_run_is_held_against_the_rate_it_began_with(model: Path, tmp_path: Path) -> None:
    """When it is killed its own rate has fallen: 0.88 is above the floor of that, and below that of the parent's."""
    require_killed(die_in_kto, tmp_path / "run", model, 3, (1.0, 0.95))
    assert emissions(tmp_path / "run") == [(0, 1.0), (2, 0.95)]
    done = run_kto(model, tmp_path / "run", lambda policy: 0.88)
    assert done.stopped_by.startswith("emission: 0.880") and done.steps == 4
    assert emissions(tmp_path / "run") == [(0, 1.0), (2, 0.95), (4, 0.88)]
