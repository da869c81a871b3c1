"""Our supervised stage against TRL's trainer as it comes, on the same rows.

Each measurement runs in a process of its own, on one thread. Rates are of processor time inside `train`, which other
work on the machine does not change much; loading is not in them, peak memory is of the whole process. Rows are whole
conversations of the scripted expert, in batches grouped by length; nothing is packed, so no row sees another. Both
sides train all weights of the same small random Qwen3 with the same options, so their losses have to be equal: with one
row a step, they are compared row by row, and unequal ones end the benchmark.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row

ROWS, BATCH = 8, 4
LOSS_GAP_MAX = 1e-5
_PROGRAM = "from tests.benchmarks.bench_training import main; main()"


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """One pass: its rows' real tokens over processor seconds, and the loss of each step."""

    tokens_per_s: float
    losses: tuple[float, ...]


def measure() -> Sequence[Row]:
    """Tokens a second of both, their ratio, the largest difference of a row's loss, peak memory.

    Raises ValueError when a loss of ours is not the stock trainer's.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_apart(_PROGRAM, "prepare", name)
        single = {who: _training(who, folder, 1) for who in ("ours", "stock")}
        grouped = {who: _training(who, folder, BATCH) for who in ("ours", "stock")}
    gaps = [
        abs(one - other)
        for runs in (single, grouped)
        for one, other in zip(runs["ours"][0].losses, runs["stock"][0].losses, strict=True)
    ]
    if max(gaps) > LOSS_GAP_MAX:
        raise ValueError(f"a loss differs from the stock trainer's by {max(gaps):.2e}")
    return [
        _against("SFT, one row a step", single),
        _against(f"SFT, {BATCH} rows a step, by length", grouped),
        Row(
            name=f"SFT, largest difference of {len(gaps)} steps' losses",
            value=max(gaps),
            unit="nats",
            baseline=LOSS_GAP_MAX,
        ),
        Row(
            name=f"SFT, peak memory, {BATCH} rows a step",
            value=grouped["ours"][1],
            unit="MB",
            baseline=grouped["stock"][1],
        ),
    ]


def main() -> None:
    """One measurement, in a process of its own: prepare FOLDER, ours or stock FOLDER BATCH."""
    import torch

    from training.stages.engine import quiet_engine

    torch.set_num_threads(1)
    quiet_engine()
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "prepare":
        _prepare(folder)
        return
    sys.stdout.buffer.write(msgspec.json.encode(_train(what, folder, int(sys.argv[3]))))


def _training(who: str, folder: Path, batch: int) -> tuple[Training, float]:
    said, memory_mb = run_apart(_PROGRAM, who, str(folder), str(batch))
    return msgspec.json.decode(said, type=Training), memory_mb


def _against(name: str, runs: dict[str, tuple[Training, float]]) -> Row:
    ours, stock = runs["ours"][0].tokens_per_s, runs["stock"][0].tokens_per_s
    return Row(name=name, value=ours, unit="tokens/s", baseline=stock)


def _prepare(folder: Path) -> None:
    """The shop, its model, and the rows of the expert's episodes."""
    from tests.training.stock import open_stock
    from training.stages.pipeline import rows_of_traces

    shop = folder / "shop"
    shop.mkdir()
    stock = open_stock(shop)
    recipe = stock.recipe("sft", "[data]\ntokens_max = 20000\n")
    rows = rows_of_traces(stock.traces(), stock.codec, recipe).rows
    rows = sorted(rows, key=lambda row: len(row.token_ids))[:ROWS]
    (folder / "rows.json").write_bytes(msgspec.json.encode(rows))


def _train(who: str, folder: Path, batch: int) -> Training:
    """Train on all rows once, by our stage or by the stock trainer."""
    from training.model import TokenRow

    rows = msgspec.json.decode((folder / "rows.json").read_bytes(), type=tuple[TokenRow, ...])
    with _timed() as seconds:
        log = (_ours if who == "ours" else _stock)(folder, rows, batch)
    return Training(
        tokens_per_s=sum(len(row.token_ids) for row in rows) / sum(seconds),
        losses=tuple(line["loss"] for line in log if "loss" in line),
    )


@contextlib.contextmanager
def _timed() -> Iterator[list[float]]:
    """Processor seconds inside the engine's `train`, which both sides call."""
    from transformers import Trainer

    spent: list[float] = []
    train = Trainer.train

    def timed(*given: Any, **named: Any) -> Any:
        started = time.process_time()
        try:
            return train(*given, **named)
        finally:
            spent.append(time.process_time() - started)

    Trainer.train = timed
    try:
        yield spent
    finally:
        Trainer.train = train


def _ours(folder: Path, rows: Any, batch: int) -> list[dict[str, float]]:
    from training.models.render import Qwen3Codec
    from training.recipe import Recipe
    from training.run import RunFolder
    from training.stages.sft import train_sft

    model = folder / "shop" / "model"
    text = (
        f'name = "bench"\nstage = "sft"\nmodel = "{model}"\n[lora]\nr = 0\n[optim]\nlr = 1e-3\nepochs = 1.0\n'
        f'batch_rows = {batch}\naccumulation = 1\nwarmup_share = 0.0\nschedule = "constant"\nis_bf16 = false\n'
        "is_checkpointing = false\nsave_every_steps = 1000\n"
    )
    recipe = msgspec.toml.decode(text, type=Recipe)
    run = RunFolder(folder / f"ours-{batch}", recipe)
    train_sft(recipe, run, rows, [], Qwen3Codec(model).tokenizer.pad_token_id)
    return run.lines()


def _stock(folder: Path, rows: Any, batch: int) -> list[dict[str, float]]:
    """TRL as it comes; said are only the options that make it do the same: no truncation, no mixed precision."""
    import transformers
    from trl import SFTConfig, SFTTrainer

    from training.stages.sft import _dataset

    model = folder / "shop" / "model"
    options = SFTConfig(
        output_dir=str(folder / f"stock-{batch}"),
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        num_train_epochs=1,
        per_device_train_batch_size=batch,
        train_sampling_strategy="group_by_length",
        max_length=None,
        bf16=False,
        gradient_checkpointing=False,
        seed=0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = SFTTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(str(model)),
        args=options,
        train_dataset=_dataset(rows),
        processing_class=transformers.AutoTokenizer.from_pretrained(str(model)),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return list(trainer.state.log_history)
