"""What a newcomer runs, run as a newcomer does."""
