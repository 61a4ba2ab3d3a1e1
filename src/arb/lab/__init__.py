"""One run: a configuration to a folder with a fine-tuned policy, its tables and its curve."""
