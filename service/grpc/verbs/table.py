"""All verbs of ``kvshelf.v1`` by the names they have in the ``.proto``."""

from service.access import Scope
from service.grpc.call import Verb
from service.grpc.verbs import leases, namespaces, operate, plans, records, stores

VERBS = {
    "Register": Verb("register", Scope.WRITE, unary=namespaces.register),
    "GetNamespace": Verb("register", Scope.READ, unary=namespaces.show),
    "ListNamespaces": Verb("register", Scope.READ, unary=namespaces.list_all),
    "Hash": Verb("hash", Scope.READ, unary=namespaces.hash_tokens),
    "Plan": Verb("plan", Scope.READ, unary=plans.plan),
    "Fetch": Verb("fetch", Scope.READ, download=leases.fetch, while_draining=True),
    "Renew": Verb("touch", Scope.READ, unary=leases.renew, while_draining=True),
    "Release": Verb("release", Scope.READ, unary=leases.release, while_draining=True),
    "Store": Verb("store", Scope.WRITE, upload=stores.store),
    "Touch": Verb("touch", Scope.READ, unary=records.touch),
    "Delete": Verb("delete", Scope.WRITE, unary=records.delete),
    "ReadRecord": Verb("record", Scope.READ, download=records.read),
    "LookAtRecord": Verb("record", Scope.READ, unary=records.look),
    "DeleteRecord": Verb("record", Scope.WRITE, unary=records.delete_one),
    "Stats": Verb("stats", Scope.READ, unary=operate.stats, while_draining=True),
    "Health": Verb("operate", None, unary=operate.health, while_draining=True),
}
