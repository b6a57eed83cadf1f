"""Nothing but its place: pytest puts this folder on the path, and tests below it import its helpers."""
