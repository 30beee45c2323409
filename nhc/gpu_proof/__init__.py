"""A GPU proved in a second with nothing but its driver: processes of their own, one a GPU, that call libcuda."""
