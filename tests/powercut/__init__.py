"""Cuts the power: records what the product writes, builds the disks that a cut can leave, and opens each of them."""
