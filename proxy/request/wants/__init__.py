"""Knowledge that steps want: one module for each kind."""
