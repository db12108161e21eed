"""A job whose requirements.txt lists the libraries of all stores."""
