"""Proves the product with real processes, servers and disks while faults occur: `python -m tests.chaos`.

Clients use a running system and record what they did and what they were told (`history`). Faults occur meanwhile
(`faults`). Then the faults stop, the contents of all stores are read (`audit`), and the checker compares the two
(`checker`). The checker does not import the product.
"""
