"""Why a group does not run and what would help, and the present state as frozen views."""
