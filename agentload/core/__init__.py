"""The pure ground: records, interval algebra, attribution and accounting. No files, no network, no clock."""
