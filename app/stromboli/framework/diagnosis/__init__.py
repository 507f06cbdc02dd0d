"""Why pods wait, and what statuses, Events and `why` say of it."""
