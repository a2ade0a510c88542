"""Tables: what `kubectl get` prints, made by the server as clients ask for it.

Lives here: the columns and cells of every kind that is served, and of custom resources by the columns that
their definition names. Called by the HTTP face through `printer.Tables`. Not here: the selection of rows.
"""
