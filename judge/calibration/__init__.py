"""How wrong a judge is: traces whose quality is known by construction, and what judges make of them."""
