"""`arena init`: a folder with an agent that works, its test and one problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurons.cli.options import JsonOption
from neurons.cli.presenter import show

app = typer.Typer()


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the agent.")],
    as_json: JsonOption = False,
) -> None:
    """Begin an agent: a file that works, its test, one problem.

    arena init my_agent

    The agent lets the model write every call; its comments say where to change it. Anybody may build on it: the gate
    takes its code away before it compares agents. Nothing that exists is overwritten.
    """
    from neurons.practice.new_agent import agent_files

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(f"{folder} exists and is not empty: choose another folder", param_hint="FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    files = agent_files()
    for name, content in files.items():
        with (folder / name).open("x", encoding="utf-8") as stream:
            stream.write(content)
    agent = folder / "agent.py"
    following = (
        f"arena check {agent}",
        f"arena run {agent} --problems {folder / 'problem.jsonl'}",
        f"arena run {agent} --watch",
    )
    lines = [f"{folder}: {', '.join(files)}", "", "next:", *(f"  {line}" for line in following)]
    show({"folder": str(folder), "files": list(files), "next": list(following)}, lines, as_json=as_json)
