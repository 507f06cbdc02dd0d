"""How actions do what they do: worksheets, domains, victims, bundles. Only actions use it."""
