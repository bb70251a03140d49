"""From tables of metadata to streams: readers, filters, order, classes, splits, albums."""
