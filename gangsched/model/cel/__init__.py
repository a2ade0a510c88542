"""Selectors of devices: Kubernetes' CEL expressions, compiled once and evaluated on devices.

`selector.compile` is the way in. It expects what an API server has stored, which has parsed the expression,
checked its types and limited its cost; so types are looked at only when a value is used, and one that does
not fit is an error. Lives here: the language and its libraries as Kubernetes 1.37 has them for devices, with
every evaluation limited in steps. Not here: which devices there are, and who may have them.

Refused, and said by name: messages of protobuf, time zones with a name, lists as attributes (alpha in 1.37),
120 levels of nesting (cel-go: 250), patterns of more than a megabyte, quantities beyond 1e400. Not repeated:
that cel-go changes an empty list in place where `cel.bind` names it, and that it breaks off at `sort` and
`distinct` of what has failed.
"""
