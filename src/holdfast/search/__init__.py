"""From a query to passages that are served, and answers that quote them."""
