"""The report of a sweep: one file of HTML with its figures in it, which opens without a network."""

from stromboli.lab.report.page import page

__all__ = ["page"]
