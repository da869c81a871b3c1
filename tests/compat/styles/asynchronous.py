"""SN15 of May 2026, asynchronous inside: searches side by side, a log file, a message to a place that isn't there."""

import asyncio
import logging
import urllib.error
import urllib.request

from src.agent.proxy_client import ProxyClient

logger = logging.getLogger("agent")
logger.addHandler(logging.FileHandler("/app/logs/agent.log"))
proxy = ProxyClient()


def report(text):
    try:
        urllib.request.urlopen(urllib.request.Request("https://hooks.example/agent", data=text.encode()), timeout=1)
    except urllib.error.URLError as error:
        logger.warning("not told: %s", error)


async def search(text, gate):
    async with gate:
        return await asyncio.to_thread(proxy.get, "/search/find_product", {"q": text, "page": 1})


async def shop(query):
    gate = asyncio.Semaphore(2)
    words = query.split()
    texts = [" ".join(words[start : start + 4]) for start in range(0, min(len(words), 12), 4)]
    pages = await asyncio.gather(*(asyncio.wait_for(search(text, gate), 30) for text in texts))
    return [hit["product_id"] for page in pages for hit in page or []]


def agent_main(problem_data):
    report("begins")
    ids = asyncio.run(shop(problem_data["query"]))
    call = {"name": "recommend_product", "parameters": {"product_ids": ",".join(ids[:3])}, "tool_call_id": "r"}
    message = {"think": "the first of each page", "tool_call": [{**call, "result": ""}]}
    return [{"completion": {"message": message}, "extra_info": {"step": 1, "query": problem_data["query"]}}]
