"""Images on their way into a store: from folders, archives, tables and the web, in parallel, resumable."""
