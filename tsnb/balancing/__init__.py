"""Carrying out what `planners` decides: cores and threads of real processes."""
