"""The papers' tables and figures: manifest, runner, claims, report."""
