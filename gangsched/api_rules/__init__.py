"""Kubernetes' rules for what is written to an API server: schemas, defaults, validation, a Job's pods. Pure.

Two read them: `gangsched whatif`, which says what a server would refuse before a job is submitted
(whatif.accepted, whatif.makers.controllers), and the embedded API server (lab.apiserver), which answers with
them; tests/contract sends that and a real server the same requests.

    schema/                     the fields of the built-in kinds, their types, and the decoding of objects
    pod_defaults, canonical     what a server fills in, and how it prints quantities
    pod_validation and its      what a server refuses in a pod's spec, field by field
      parts, names, selectors
    jobs, job_pods              the same for Jobs; the pods that their controller makes
    status                      the errors: problems of fields, and Status objects

Not here: what an update may change, admission, the kinds that only the embedded server has.
"""
