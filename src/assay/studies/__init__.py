"""A design becomes cells, cells become measured children, and what they did becomes one record."""
