"""What must hold in every run. catalogue.py lists the judges by name; each subject has a room."""
