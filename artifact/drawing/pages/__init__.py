"""What the pages that belong to no room show: their tables, and sentences with numbers, a page in a module each."""
