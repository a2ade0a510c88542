"""Record and replay: the core's inputs as a journal on disk, and the same decisions made from it again.

The core only receives inputs and never fetches any, so its inputs and their times are all that a day consists
of. A recorder stands between the loop and the core and records each call: the events as they came, the time,
the random choices, which plugin calls hit their time limit, and a digest of the effects. A replay builds the
same core from the journal's configuration, makes the same calls, and compares the digests: equal ones prove
that nothing outside the journal affected a decision.

    records     the content of a record, and its bytes
    segments    files of records: compressed, named, bounded when read, readable to the last whole record
    writing     a thread that writes segments, deletes old ones, and drops records if the disk is too slow
    recorder    the core's calls into records
    state       all that a core remembers, as bytes
    replay      a journal as calls of a new core, whose answers are compared, printed, drawn and traced
    anonymise   a journal under other names, with the same decisions

Not here: deciding (the core does not know about the journal).
"""
