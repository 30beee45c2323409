"""The program that repairs on the node. It is sent there: it imports the standard library and four modules of nhc."""
