"""The kvshelf service: planner, profiles, namespaces, faces and command line."""
