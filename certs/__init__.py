"""The TLS pair of the listener: made when there is none, loaded, shown by its fingerprint."""
