"""Looking at a store: lists, pages, figures and exports.

Invariant: everything here works on a read-only store and loads a page or streams; nothing loads a history to show a
part of it. Not for: opening stores (`gate`) or printing (`commands`).
"""
