"""Lies to the host and bombs, one a function: the query names the one to run; and an honest agent.

A program says `tried` when it has tried, `reached` where no limit stopped it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import errno
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from arena_sdk import ToolError, llm, tools

EXIT_THREAD = {"x86_64": 60, "aarch64": 93}
PROMPTS = (
    '{"name": "find_product", "arguments": ' * 990 + "{}" + "}" * 990,
    "find_product(" * 4_000,
    "find_product" + "(" * 60_000,
    "<tool_call>" * 4_000,
    "[" * 60_000 + "find_product",
    "find_product(page=" + "9" * 5_000 + ")",
)


def agent_main(problem):
    """Run the program that the query names."""
    target = json.loads(problem["query"])
    return globals()[target["program"]](target)


def bomb(program):
    """Takes `amount`, and says so where nothing stopped it."""

    def run(target):
        tools.find_product(q="tried")
        program(target)
        tools.find_product(q="reached")

    return run


def hold():
    block = bytearray(b"x" * (40 << 20))
    time.sleep(30)
    os._exit(len(block) and 0)


def fill(count):
    pairs = [socket.socketpair() for _ in range(count)]
    for end in (end for pair in pairs for end in pair):
        end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                end.send(b"x" * 65536)
    time.sleep(30)


@dataclasses.dataclass
class Pick:
    product_id: str


async def search_together():
    return await asyncio.gather(*(asyncio.to_thread(tools.find_product, q=f"lamp {i}") for i in range(4)))


@bomb
def bomb_cpu(target):
    """Computes in one child after another, each with a clock of its own, behind its host's back."""
    for _ in range(target["amount"]):
        if os.fork() == 0:
            end = time.process_time() + 0.4
            while time.process_time() < end:
                pass
            os._exit(0)
        os.wait()


@bomb
def bomb_disk(target):
    """Fills every mount that it can write to."""
    places = {os.environ["TMPDIR"], "/tmp", "/var/tmp", "/dev/shm"}
    with contextlib.suppress(OSError):
        places |= {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    for place in sorted(place for place in places if not place.startswith(("/proc", "/sys"))):
        try:
            for number in range(target["amount"]):
                Path(place, f"filler-{number}").write_bytes(b"x" * (1 << 20))
                time.sleep(0.02)  # where the size is watched, not given: until it has been looked at
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise


@bomb
def bomb_forks(target):
    """Forks without waiting, up to a number far above the limit."""
    for _ in range(target["amount"]):
        time.sleep(0.005)  # where processes are counted, not refused: until somebody has counted
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)


@bomb
def bomb_memory_hidden(target):
    """Many processes that together take more memory than one jail may, each behind a first thread that has ended:
    such a process shows no memory under its own number."""
    for _ in range(target["amount"]):
        if os.fork() == 0:
            threading.Thread(target=hold).start()
            ctypes.CDLL(None).syscall(EXIT_THREAD[os.uname().machine], 0)
    time.sleep(2)


@bomb
def bomb_memory_many(target):
    """Many processes that together take more memory than one jail may."""
    for _ in range(target["amount"]):
        if os.fork() == 0:
            hold()
    time.sleep(2)


@bomb
def bomb_memory_one(target):
    """One process that takes more and more memory."""
    blocks = []
    for _ in range(target["amount"]):
        blocks.append(bytearray(b"x" * (8 << 20)))


@bomb
def bomb_names(target):
    """Makes files without content: they take no space, only the kernel's memory."""
    folder = os.environ["TMPDIR"]
    for number in range(target["amount"]):
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))


@bomb
def bomb_output(target):
    """Prints without end, in a child that nobody reads."""
    program = "import sys\nfor _ in range(int(sys.argv[1])): sys.stderr.write('x' * 10000)"
    subprocess.run([sys.executable, "-c", program, str(target["amount"])])


@bomb
def bomb_socket_buffers(target):
    """Fills the buffers of many socket pairs in many processes: memory that belongs to none of them."""
    for _ in range(target["amount"]):
        if os.fork() == 0:
            fill(100)
            os._exit(0)
    time.sleep(2)


def deep_arguments(target):
    """Sends arguments so deep, long and crowded that reading them would keep the host busy for ever."""
    tools.find_product(q="tried")
    deep = '{"a":' * 60 + "1" + "}" * 60
    texts = [deep, json.dumps({"q": deep}), "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900]
    texts.append(json.dumps({"q": "a" + "\u0301\u0316" * 9000}, ensure_ascii=False))
    told = [tools.execute("find_product", text) for text in texts]
    try:
        tools.execute("find_product", json.dumps({"q": "x" * 300_000}))
    except ToolError as error:
        told.append(type(error).__name__)
    nested = "find_product(" * 900 + "x" * 60_000 + ")" * 900
    llm.chat(
        [{"role": "user", "content": nested}, {"role": "user", "content": '{"name":"find_product","arguments":' * 900}]
    )
    return [text[:80] for text in told]


def deep_prompt(target):
    """Puts JSON nested a thousand deep, and every opening, into the prompts that the host looks for calls in."""
    tools.find_product(q="tried")
    for prompt in PROMPTS:
        llm.chat([{"role": "user", "content": prompt}])
        tools.find_product(q="x")


def forge_results(target):
    """Replaces the tools with its own, believes them, and tells of a success."""
    answer = target["guess"]
    tools.find_product(q="tried")
    honest, result = tools.call, [{"product_id": answer, "title": "found it"}]
    for module in [m for name, m in sys.modules.items() if name.startswith("arena_sdk")]:
        for name in ("find_product", "execute", "call"):
            if hasattr(module, name):
                setattr(module, name, lambda *_, **__: result)
    believed = tools.find_product(q="x")
    honest("recommend_product", product_ids=answer)
    events = [{"name": "find_product", "emitter": "llm", "result": believed}]
    print(json.dumps({"success": True, "events": events}))
    return {"success": True, "is_agentic": True, "events": events, "recommended": [answer], "unsurfaced": []}


def honest(target):
    """An honest agent: threads, asyncio, a subprocess, dataclasses, files of its own, and an answer that it found."""
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


def loop_for_ever(target):
    """Ignores every signal and computes for as long as it was told."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    tools.find_product(q="tried")
    end = time.monotonic() + target["amount"] / 10
    while time.monotonic() < end:
        pass
    tools.find_product(q="reached")


@bomb
def stop_itself(target):
    """Stops itself, so that it answers nothing and reads nothing."""
    if target["amount"] > 1:
        os.kill(os.getpid(), signal.SIGSTOP)
