"""Commands that ask a running scheduler, or explain without one."""
