"""Numerical analysis on arrays: sums and intervals, tests, fits, trees and comparisons of heads."""
