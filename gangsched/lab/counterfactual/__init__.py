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
    answers    the runs that a question needs, compared, with their spread over shaken days; what they cannot
               tell; how they are printed and drawn
    command    `gangsched counterfactual`

Not here: making the same decisions again and comparing them to the last byte (journal).
"""
