"""The scheduling framework: what a plugin is, and how the plugins of one profile are run.

`interface` is the page for plugin authors; `profile` runs the points in order; filters and scores merge
answers; plugin_calls names a plugin that fails. Not here: the plugins (gangsched.plugins), and when a point
runs (core.cycle, core.groups, core.binding).
"""
