"""What people see when pods wait or do not run: each situation is made in a namespace of its own."""
