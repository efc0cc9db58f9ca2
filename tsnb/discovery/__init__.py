"""Which streams there are: how a producer is found by its name, from any process of the same user.

| module | what it owns |
|---|---|
| `registry` | finding a producer by name |
| `entries` | one producer's entry: what it says, and whether the producer lives |
| `addresses` | addresses of producers: made, known by how they begin, swept |
| `promises` | streams that will be served in a moment |
"""
