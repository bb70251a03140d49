"""Replay buffers of positions, and the rule that adapts their size."""
