"""The dashboard: one page that shows the cluster, the queue and each gang as they change.

Lives here: the page's data (cells, history), the feed to its viewers (feed), its paths and sessions (pages,
sessions), and the page itself (static). It only reads: no decision depends on a viewer.
"""
