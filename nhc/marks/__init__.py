"""What may be done about a report, by whom and within which bounds."""
