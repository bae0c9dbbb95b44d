"""Private sums, whatever they are of: what is summed is a `Task`, handed in; who adds noise is a `TrustModel`.

A package of somebody else's adds one or the other in one file. It writes a frozen dataclass that derives from
`sums.task.Task` (or, for a clustering, from `algorithms.kmeans_task.KMeansTask`), with options that derive from
`sums.settings.Options`, and makes it known either by `sums.task.register` or, without being imported first, in its
``pyproject.toml``::

    [project.entry-points."flwr_dpkmeans.tasks"]
    votes = "their_package:Votes"

    [project.entry-points."flwr_dpkmeans.trust_models"]
    notary = "their_package:NOTARY"

Every party of a run needs the package: a plan names its task, and each client builds the rounds itself.
"""
