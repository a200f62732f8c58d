"""A study: a design becomes cells, the cells are trained by measured children, and their results become one record."""
