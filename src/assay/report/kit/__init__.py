"""Parts of every report: views, figures, pages, terminals, and commands as they are typed."""
