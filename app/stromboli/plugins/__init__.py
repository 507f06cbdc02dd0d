"""The plugins, one module each, named as in the policy file."""
