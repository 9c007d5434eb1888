"""The verbs of the service, free of any face: plan, fetch, store, finish, and the upkeep beside them."""
