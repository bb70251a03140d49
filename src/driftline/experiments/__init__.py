"""The study: one recipe a figure, with its runs, its plot and its finding."""
