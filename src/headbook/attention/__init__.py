"""What metrics are made of: views of a layer or of states, and the sums they share."""
