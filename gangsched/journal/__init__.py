"""Record and replay: the core's inputs as a journal on disk, and the same decisions made from it again.

The core is told and never asks, so what it was told, and when, is all that a day consists of. A recorder
stands between the loop and the core and writes down each call: the events as they came, the time, what chance
and the plugins' time limits said, and a digest of the effects. A replay builds the same core from the
journal's configuration, makes the same calls, and compares the digests: equal ones prove that nothing outside
the journal decided.

    records     what one record holds, and its bytes
    segments    files of records: compressed, named, bounded when read, readable to the last whole record
    writing     a thread that writes them, and drops what is too much, too old, or too fast for the disk
    recorder    the core's calls into records
    settings    what the configuration says of it
    replaying   a journal into calls of a new core, compared as they go
    playing     one process's journal, and what is printed of it; stepping and watching with it
    tracing     what is replayed as traces, into a collector
    picture     the day as an SVG: nodes over time, waits by size
    command     `gangsched replay`
    vocabulary, renaming, renamed_state, anonymising    a journal under other names
    anonymise_command    `gangsched anonymise`

Not here: deciding (the core does not know of it).
"""
