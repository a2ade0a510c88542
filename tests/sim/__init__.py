"""The scheduler in virtual time: properties over seeds, and mistakes put back on purpose."""
