"""The template's own tests, a tier a folder. A fork's are beside this folder."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Of the repository."""
