"""Libraries that the rooms are compared with; each module offers `bind`, as a room does."""
