"""What measures the shards of a run: processes of this machine, or a cluster of Ray."""
