"""Clusters: which problems could give one another's answer away.

Promise: paraphrase, reordering of items, another retailer of the same product and a new voucher all keep a problem's
cluster, since the cluster is made of its answers' product classes alone (DESIGN section 5). A product class is the
word set of a title, so near-identical listings across shops are one class. It will not yet join problems that share
only some of their answers: that takes a union-find over a whole bank.
"""

from __future__ import annotations

import hashlib
import re

from problems.model import Problem

_WORD = re.compile(r"\w+")


def product_class(*titles: str) -> str:
    """The class of a product: the case-folded words of its title (or titles), each once, sorted."""
    return " ".join(sorted({word for title in titles for word in _WORD.findall(title.casefold())}))


def cluster_id(problem: Problem) -> str:
    """sha256 hex over the sorted product classes of the answers.

    Guessable from a public catalogue: outside the validators it travels only as a keyed commitment.
    """
    classes = sorted({product_class(*item.title) for item in problem.rewards})
    return hashlib.sha256("\n".join(classes).encode(errors="surrogatepass")).hexdigest()
