"""From a permitted plan to bound pods: PreBind, the Bindings, their answers, and giving back.

`binder` owns the life of a bind; pre_bind and staggered_bind are what comes before a member is sent. Not
here: how a Binding is sent (kube.effects).
"""
