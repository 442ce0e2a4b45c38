"""The web page: the state of every document, and the actions on it.

The server renders each page once, readable without scripts. The scripts keep it up to date: they use the public API
and follow its events, and use nothing else.
"""
