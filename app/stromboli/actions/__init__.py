"""The actions of a session, one module each, named as in the policy file."""
