"""Parts of the page of methods: rules for all numbers, intervals, facts of the model and run."""
