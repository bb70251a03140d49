"""The embedded world: simulated photographers at real places, rendered from real satellite imagery."""
