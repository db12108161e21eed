"""The tests, a tier a folder."""
