"""`arena serve-model`: a model folder as an endpoint on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command("serve-model")
def serve_model(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A model folder, or a run.", exists=True, file_okay=False)
    ],
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port on 127.0.0.1; 0: a free one.")] = 8410,
    context: Annotated[int, typer.Option("--context", min=256, help="Tokens of prompt and answer together.")] = 16_384,
    answer: Annotated[int, typer.Option("--answer", min=16, help="Tokens of an answer, at most.")] = 1_024,
) -> None:
    """Serve a model folder on this machine, to try agents on a model that reads the prompt.

    arena serve-model models/qwen3-0.6b

    Needs the extra `train` (torch) and a model in Hugging Face's form: no package ships weights, so the folder is
    yours, such as a downloaded Qwen3 or a run of `arena train`. One request at a time; minutes a problem on a CPU.
    A small model solves little: it shows whether a prompt is understood, not how a large model scores. Ctrl-C ends it.
    """
    from training.evaluation.model_loader import open_candidate
    from training.model import Decode
    from training.rollouts.model_server import ModelEndpoint, open_model_server

    loaded = open_candidate(folder, ())
    decode = Decode(temperature=0, top_p=1.0, turn_tokens_max=answer, context_tokens_max=context)
    name = folder.resolve().name
    server = open_model_server(ModelEndpoint(loaded.sampler, loaded.codec, name, decode), port)
    typer.echo(f"serving {name}; Ctrl-C ends it. In another shell:")
    typer.echo(f"  arena run AGENT.py --model-url http://127.0.0.1:{server.server_address[1]}/v1 --model {name}")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
    finally:
        server.server_close()
