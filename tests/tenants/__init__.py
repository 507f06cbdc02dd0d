"""What one tenant can do to another: hostile loads beside a tenant whose gangs are timed, on a real control plane."""
