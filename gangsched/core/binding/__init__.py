"""From a permitted plan to bound pods: PreBind, the Bindings, their answers, and releases.

`binder` begins binds and takes their answers. A permitted unit goes through pre_bind, staggered_bind and
bind_sender, each of which knows only the next; a bind that is given up goes to fenced_binds, and
group_outcome decides what happens to the group. Not here: how a Binding is sent (kube.effects).
"""
