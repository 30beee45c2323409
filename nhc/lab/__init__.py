"""What tries nhc: made-up fleets, drills, simulations, the test kit."""
