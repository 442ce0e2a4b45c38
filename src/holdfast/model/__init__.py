"""What a language model is asked, and what is believed of its answers."""
