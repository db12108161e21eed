"""What functions-framework serves, one file a peer. Each is deployed as main.py, with what it needs beside it."""
