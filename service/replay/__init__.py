"""The replayer: drives a service with a trace as an engine would, and checks every byte it gets back."""
