"""What a consumer and its producer say to each other.

| module | what it owns |
|---|---|
| `session` | the consumer's side of the protocol, without I/O |
| `line`, `waits` | carries out what the session decides; what is looked at while it waits |
| `connection` | messages and batches of one producer |
| `standstill` | a producer that stands still |
"""
