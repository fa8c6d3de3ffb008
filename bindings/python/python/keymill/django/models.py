"""No models: Django sends its signals about migrations only to applications that have this module."""
