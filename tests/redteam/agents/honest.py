"""An honest agent: threads, asyncio, a subprocess, dataclasses, files of its own, and an answer that it found."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

from arena_sdk import llm, tools


@dataclasses.dataclass
class Pick:
    product_id: str


async def search_together():
    return await asyncio.gather(*(asyncio.to_thread(tools.find_product, q=f"lamp {i}") for i in range(4)))


def agent_main(problem):
    results = queue.Queue()
    threads = [threading.Thread(target=lambda: results.put(tools.find_product(q="red lamp"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True)
    Path(os.environ["TMPDIR"], "note").write_text(done.stdout)
    llm.chat([{"role": "user", "content": "Which lamp is red?"}])
    assert len(asyncio.run(search_together())) == 4
    pick = Pick(results.get()[0]["product_id"])
    tools.find_product(q="tried")
    tools.recommend_product(pick.product_id)
    tools.terminate()
    return done.stdout
