"""What nhc asks of adapters, repairers, sinks, launchers and others: Protocols, and the values they exchange."""
