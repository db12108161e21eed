"""Jobs of the tests' own, which functions-framework loads in place of main.py."""
