"""The systems on trial: a folder each. `artifact.registry` finds them and says what is in one."""
