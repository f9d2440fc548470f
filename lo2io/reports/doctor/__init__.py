"""What this machine lets lo2io do."""
