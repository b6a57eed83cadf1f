"""Nothing here is a test of this tree: `test_add_a_system.py` copies it into another one and runs it there."""

collect_ignore_glob = ["*"]
