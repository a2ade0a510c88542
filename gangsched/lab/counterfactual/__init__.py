"""`gangsched counterfactual`: a recorded day under another configuration, with more nodes, or without a gang.

The users' part comes from the journal: when pods came, how long they ran, which nodes existed. The
scheduler's decisions are made again by the real core, on the simulator's cluster, in virtual time. The
recorded configuration goes through the same model, so that the model's own error can be compared with its
claim.

    day        a journal as values: pods with their lives, nodes and other objects over time
    reading    a journal into a day
    lives      the life of each of its pods
    run_times  how long each pod runs in a model, as far as the recording shows
    cluster    the simulator's API server without failures, and kubelets and controllers that act as recorded
    model      a day under a configuration: when each pod was bound, how full the cluster was
    gangs      which pods form a gang, and shaken days
    compare    the recording and models side by side, with their spread over shaken days
    answer     every run that a question needs, and their results
    unknown    what the answer cannot know, in words
    report     what is printed
    picture    the cluster over time and waits by size, as SVG
    command    `gangsched counterfactual`

Not here: making the same decisions again and comparing them to the last byte (journal).
"""
