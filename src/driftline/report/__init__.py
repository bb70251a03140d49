"""A run's files become a page, figures for a paper, and a live view."""

from driftline.report.figures import write_figures
from driftline.report.page import write_report
from driftline.report.run_files import RunFiles, load_run
from driftline.report.watch import watch

__all__ = ["RunFiles", "load_run", "watch", "write_figures", "write_report"]
