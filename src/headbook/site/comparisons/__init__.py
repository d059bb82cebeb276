"""Sites of several models: two side by side, or the checkpoints of one."""
