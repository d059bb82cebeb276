"""Studies, heads, sentences and charts as outputs of notebook cells."""
