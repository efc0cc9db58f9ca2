"""Channels that carry packets, whole and in order, between a producer and whoever attaches."""
