"""What people do: put documents in, take them out, look at them."""
