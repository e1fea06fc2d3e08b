"""The artifact (one safetensors file, written atomically), and tables of rows in and out."""
