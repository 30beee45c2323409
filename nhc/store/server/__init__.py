"""The server that takes in the reports that agents push."""
