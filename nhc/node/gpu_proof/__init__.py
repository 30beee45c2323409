"""A GPU proved in a second by processes of their own, one a GPU, that call libcuda, or AMD's libamdhip64."""
