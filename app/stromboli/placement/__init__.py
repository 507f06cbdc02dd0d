"""How pods, gangs and jobs find places; for actions."""
