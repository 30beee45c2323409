"""node-problem-detector's configuration files, read as they are, and its words on /metrics and /conditions."""
