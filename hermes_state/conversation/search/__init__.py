"""Full-text search over the messages of one store, on an index that may be deleted at any time."""

from hermes_state.conversation.search.records import Hit, IndexCheck, IndexWork, Neighbour, SearchResult
from hermes_state.conversation.search.search import Search

__all__ = ["Hit", "IndexCheck", "IndexWork", "Neighbour", "Search", "SearchResult"]
