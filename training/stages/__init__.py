"""The five stages of post-training, one module each (paper section 6)."""
