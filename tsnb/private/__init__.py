"""Files and directories that no other user can read, change or replace.

| module | what it owns |
|---|---|
| `directories` | directories, and whose they are |
| `files` | files in them |
"""
