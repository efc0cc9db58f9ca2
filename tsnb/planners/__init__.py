"""Decisions on who gets how many cores and threads. Pure: what was observed goes in, instructions come out."""
