"""Why one call took as long as it did."""
