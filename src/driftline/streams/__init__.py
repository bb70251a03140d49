"""Streams: metadata tables, the build, the store on disk, fetching, and the embedded world."""
