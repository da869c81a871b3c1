"""The five stages of post-training (paper section 6). `pipeline` runs all; rejection and teacher are cases in it."""
