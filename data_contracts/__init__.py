"""Expectation suites as package data, one for each table."""
