"""A run's files become a page, figures for a paper, and a live view."""

from driftline.report.page import write_report
from driftline.report.run_files import RunFiles, load_run

__all__ = ["RunFiles", "load_run", "write_report"]
