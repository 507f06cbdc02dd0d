"""The vocabulary of the scheduler: objects, quantities, resource vectors, reasons and decisions."""
