"""Places on the sphere: S2 cells, the adaptive partition into classes, distances, countries."""
