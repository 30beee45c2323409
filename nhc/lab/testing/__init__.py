"""The public test kit: a host made of files and answers, and the contracts of adapters and repairers as tests."""
