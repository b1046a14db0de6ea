"""Does a conversation still fit a small window after compaction, and what of it is still known?"""
