"""Tables: what `kubectl get` prints, made by the server on request.

Lives here: the columns and cells of every served kind, and of custom resources by the columns in their
definition. Called by the HTTP face through `printer.Tables`. Not here: the selection of rows.
"""
