"""Taking sessions out of a store, or out of sight: prune, delete, archive, pin, rename.

Invariant: what is removed was planned, is compared with the plan again inside the transaction that removes it, and is
in the ledger before it goes. Not for: choosing sessions (`selection`), opening stores (`gate`), options (`commands`).
"""
