"""How fast a model is sampled from in this process: conversations as rollouts have them, without catalogue and tools.

The figures are of one run of `measure_speed`, with the clocks it is given; nothing is left out of a run but
opening the model. The tokens are random, and turns always have their full length: it says nothing of a model.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from training.model import Decode, Sampler


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations to have, `parallel` at a time. They begin alike, as system prompt and tools do."""

    conversations: int = 64
    parallel: int = 64
    turns: int = 4
    prompt_tokens: int = 1_500  # of the first turn
    shared_tokens: int = 900  # of these, the same in all conversations
    turn_tokens: int = 60  # sampled in each turn
    told_tokens: int = 400  # what tools say between two turns


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took. Processor time is of all threads of this process."""

    conversations: int
    sampled_tokens: int
    prompt_tokens: int  # over all turns, whether they had to be computed or not
    wall_s: float
    processor_s: float

    @property
    def rollouts_per_s(self) -> float:
        """Conversations a second of wall time."""
        return self.conversations / self.wall_s

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens a second of wall time, the prompts' share of it included."""
        return self.sampled_tokens / self.wall_s


def measure_speed(
    sampler: Sampler, vocabulary: int, load: Load, *, wall: Callable[[], float], processor: Callable[[], float]
) -> Speed:
    """Have the conversations of `load` and time them; ids are drawn from the first `vocabulary`, seeded.

    `wall` and `processor` give seconds (time.perf_counter, time.process_time). The sampler may not draw its stop token:
    suppress it, or turns end early and `sampled_tokens` is smaller.
    """
    shared = _ids(random.Random("shared"), vocabulary, load.shared_tokens)
    decode = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=load.turn_tokens)

    def talk(number: int) -> tuple[int, int]:
        """(tokens sampled, tokens of all prompts)."""
        draw = random.Random(number)
        prompt = (*shared, *_ids(draw, vocabulary, load.prompt_tokens - load.shared_tokens))
        sampled, asked = 0, 0
        for turn in range(load.turns):
            said = sampler.sample(prompt, decode, number * load.turns + turn).token_ids
            sampled, asked = sampled + len(said), asked + len(prompt)
            prompt = (*prompt, *said, *_ids(draw, vocabulary, load.told_tokens))
        return sampled, asked

    started = wall(), processor()
    with ThreadPoolExecutor(load.parallel) as pool:
        counts = list(pool.map(talk, range(load.conversations)))
    return Speed(
        conversations=load.conversations,
        sampled_tokens=sum(sampled for sampled, _ in counts),
        prompt_tokens=sum(asked for _, asked in counts),
        wall_s=wall() - started[0],
        processor_s=processor() - started[1],
    )


def _ids(draw: random.Random, vocabulary: int, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(vocabulary) for _ in range(count))
