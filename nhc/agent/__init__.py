"""The resident agent: timers, followers, exporters."""
