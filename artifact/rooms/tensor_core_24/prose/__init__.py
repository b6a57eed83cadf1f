"""The chapter's sentences that hold numbers, as Markdown; a section's in a module each."""
