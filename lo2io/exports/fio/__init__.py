"""The export to fio's logs, and their replay."""
