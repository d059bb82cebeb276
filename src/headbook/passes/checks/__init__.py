"""Whether what is read is the model's own attention, and how exact it is."""
