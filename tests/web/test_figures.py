"""The first of a race against the second: the interval on the page follows from what it links to."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

from arena.race.scores import resample
from tests.web.episode_stand import PUBLISHED, agent_id


def test_the_first_leads_the_second_by_what_both_had_on_the_same_problems(served):
    """The interval worked out anew from what the page links to."""
    settlement = served.http.get(f"/v1/races/{PUBLISHED[0]}/settlement").json()
    page = served.http.get(f"/races/{PUBLISHED[0]}", headers={"accept": "text/html"}).text
    said = page[page.index('class="gap"') :]
    said = said[: said.index("</p>")]
    (address,) = re.findall(r'href="(/v1/races/[^"]*problems[^"]*)"', said)
    rows = {row["problem_id"]: row for row in served.http.get(address.replace("&amp;", "&")).json()["items"]}
    counted = [name for name in settlement["drawn"] if name not in settlement["void"]]
    best = [row["agent_version_id"] for row in sorted(settlement["standings"], key=lambda row: row["rank"])[:2]]
    weight = msgspec.json.decode(settlement["inputs"]["policy"])["race"]["lambda_e4"] / 10_000
    resampled = []
    for agent in best:
        scores, agentic = [], []
        for name in counted:
            (result,) = (one for one in rows[name]["results"] if one["agent_version_id"] == agent)
            scores.append(result["coefficient_e4"] if result["is_success"] else 0)
            agentic.append(result["is_agentic"])
        picks = resample(settlement["seed"], len(counted))
        share = np.array(agentic)[picks].mean(axis=1)
        resampled.append(np.array(scores)[picks].mean(axis=1) * (1 - weight + weight * share))
    low, high = np.percentile(resampled[0] - resampled[1], [2.5, 97.5])
    told = [float(one) for one in re.findall(r"-?\d\.\d{4}", said.partition("</svg>")[2])]
    assert told[:2] == pytest.approx([low / 10_000, high / 10_000], abs=0.004)
    assert agent_id(0) in best
