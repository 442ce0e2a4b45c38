"""Holdfast indexes every document once, keeps what it indexed, and never lets old work overwrite new."""

import logging

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever uses a library decides where it speaks
