"""Tests that drive a real gateway over real TLS."""
