"""One module a page: what it is asked, what it shows at first."""
