"""The recipes: one module a figure of the paper."""
