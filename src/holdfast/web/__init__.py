"""The web page: every document's true state, and what can be done about it.

The server paints each page once, readable without a script. The scripts beside it keep it true: they read the public
API and follow its events, and ask for nothing else.
"""
