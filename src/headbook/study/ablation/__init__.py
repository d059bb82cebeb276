"""Results of ablation and of tasks, their tables, and their verdicts."""
