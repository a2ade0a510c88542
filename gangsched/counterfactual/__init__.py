"""`gangsched counterfactual`: a recorded day under another configuration, with more nodes, or without a gang.

What users did is taken from the journal: when pods came, how long they ran, what nodes there were. What the
scheduler did is decided anew by the real core, on the simulator's cluster, in virtual time. The recorded
configuration goes through the same model, so that the model's own error stands beside what it claims.

    day        a journal as values: pods with their lives, nodes and other objects over time
    reading    a journal into a day
    lives      what became of each of its pods
    run_times  how long each runs in a model, as far as the recording lets one know
    cluster    the simulator's API server in good weather, and kubelets and controllers that do as recorded
    model      a day under a configuration: when each pod was bound, how full the cluster was
    gangs      which pods are one gang, and the day shaken
    compare    the recording and models side by side, with their spread over shaken days
    answer     every run that a question needs, and what comes of them
    unknown    what that cannot know, in words
    report     what is printed
    picture    the cluster over time and waits by size, as SVG
    command    `gangsched counterfactual`

Not here: the same decisions made again and compared to the last byte (journal).
"""
