"""Reads folders, web pages and sitemaps; independent of bases and the database."""
