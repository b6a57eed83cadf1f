"""What the pages that belong to no system show: their tables, and sentences with numbers, a page in a module each."""
