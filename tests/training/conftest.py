"""What the tests of this room share: real episodes once a session, and a small export of records made from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.training.firehose import Episode, Firehose, real_episodes, write_day

if TYPE_CHECKING:
    from tests.training.stock import Stock

DAY = 60  # trajectories


@pytest.fixture(scope="session")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    """Every agent of the firehose on seven problems, run in this process: the bodies are a jail's."""
    folder = tmp_path_factory.mktemp("arena")
    return real_episodes(folder, counts={"product": 3, "shop": 2, "voucher": 2}, is_in_process=True)


@pytest.fixture(scope="session")
def firehose(episodes: list[Episode]) -> Firehose:
    """The firehose over these episodes."""
    return Firehose(episodes)


@pytest.fixture(scope="session")
def day(firehose: Firehose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed export of 60 trajectories in three shards, log and Parquet view. Copy it before changing it."""
    folder = tmp_path_factory.mktemp("day") / "export"
    write_day(firehose, folder, DAY, formats=("jsonl", "parquet"), rows_per_shard=25)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of one layer."""
    from tests.training.stage_runs import write_model

    return write_model(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """A small shop, its problems in three pools, and a random model."""
    from tests.training.stock import open_stock  # torch: not for the tests of the corpus

    return open_stock(tmp_path_factory.mktemp("stock"))
