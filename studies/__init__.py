"""Studies made with the product, outside the wheel: scripts, their plans and their results."""
