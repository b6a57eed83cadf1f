"""Figures, tables and pages: style, marks and legends that figures share, and the pages that are of no system."""
