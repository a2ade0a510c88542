"""From a permitted plan to bound pods: PreBind, the Bindings, their answers, and releasing reservations.

`binder` owns the life of a bind; pre_bind and staggered_bind run before a member's bind is sent. Not here:
how a Binding is sent (kube.effects).
"""
