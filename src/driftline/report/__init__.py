"""From a run's files to a page and to figures."""
