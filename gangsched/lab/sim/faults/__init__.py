"""What people, machines and plugins do wrong, drawn from a seed."""
