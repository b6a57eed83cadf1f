"""The timer, the check against float64, and records: how anything here is measured."""
